"""The KV cache: blocks that running sequences hold, and those of earlier ones that can be found again by
the hash of their prefix until their room is needed, the least recently used first."""

from collections import abc

from replicarouter.simulator.prefix_tree import PrefixTree, Run


class KvBlocks:
    """Counts blocks of `block_size` tokens; takes all that is asked for or nothing.

    A block is held by running sequences or `free`. As in vLLM, a free block with a hash stays findable
    until it is taken for something else; blocks without one are taken first. Where two sequences have
    computed the same block at the same time, one copy is given back, which vLLM does at their end.
    """

    __slots__ = ("_tree", "block_size", "free", "total")

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.free = total
        self._tree = PrefixTree()

    def needed(self, tokens: int) -> int:
        """Blocks that `tokens` fill, the last one perhaps in part."""
        return -(-tokens // self.block_size)

    @property
    def usage(self) -> float:
        """Share that running sequences hold, 0 to 1: vLLM's `kv_cache_usage_perc`."""
        return 1 - self.free / self.total

    @property
    def findable(self) -> int:
        """How many blocks can be found by their hash."""
        return self._tree.size

    def find(self, hashes: abc.Sequence[int]) -> int:
        """How many blocks of a prefix can be found; nothing is taken, and nothing counts as used."""
        return self._tree.find(hashes)[0]

    def take(self, blocks: int) -> bool:
        """Take `blocks` if as many are free."""
        if blocks > self.free:
            return False
        self.free -= blocks
        if self._tree.idle > self.free:
            self._tree.evict(self._tree.idle - self.free)
        return True

    def give_back(self, blocks: int) -> None:
        """Free `blocks` taken before that cannot be found."""
        self.free += blocks

    def fit(self, hashes: abc.Sequence[int], blocks: int) -> bool:
        """Whether `blocks` can be had for a sequence whose leading blocks have `hashes`."""
        return blocks <= self.free or blocks - self._tree.find(hashes)[1] <= self.free

    def take_prefix(self, hashes: abc.Sequence[int], blocks: int) -> Run:
        """Take `blocks`, which must fit, for a sequence whose leading blocks have `hashes`. Of these as
        many as can be found in a row are taken as they are, up to the end of the run returned."""
        tree = self._tree
        idle = tree.idle
        run = tree.hold(tree.root, hashes)
        self.take(blocks - run.end + idle - tree.idle)
        return run

    def publish(self, run: Run, hashes: abc.Sequence[int]) -> Run:
        """Let blocks be found that a sequence has taken and computed, and that go on from what it has
        found or published, up to the end of `run`: the run that ends with them."""
        tree = self._tree
        end, size, idle = run.end, tree.size, tree.idle
        run = tree.grow(run, hashes)
        # Blocks that were there already are held in place of those that the sequence had taken.
        there, woken = run.end - end - (tree.size - size), idle - tree.idle
        self.free += there - woken
        return run

    def release(self, run: Run, others: int) -> None:
        """Free the blocks of one sequence: those up to the end of `run`, which can still be found, tails
        being taken before what they follow, and `others`."""
        self.free += self._tree.release(run) + others

    def reset(self) -> bool:
        """Forget all hashes, unless a block is held: then nothing is forgotten, as in vLLM."""
        if self.free < self.total:
            return False
        self._tree.clear()
        return True
