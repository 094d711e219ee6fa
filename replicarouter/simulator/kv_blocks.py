"""The KV cache: blocks that running sequences hold, and those of earlier ones that can be found again by
the hash of their prefix until their room is needed, the least recently used first."""

from collections import abc, deque


class KvBlocks:
    """Counts blocks of `block_size` tokens; takes all that is asked for or nothing.

    A block is held by running sequences or `free`. As in vLLM, a free block with a hash stays findable
    until it is taken for something else; blocks without one are taken first. Two sequences that compute
    the same block at the same time hold one each, of which the first to be published can be found.
    """

    __slots__ = ("_findable", "_idle", "_queue", "_queued", "_releases", "block_size", "free", "total")

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.free = total
        # Hash of a block -> how many running sequences hold it, or for a free one less the number of
        # the release that freed it.
        self._findable: dict[int, int] = {}
        self._idle = 0  # blocks that are free and findable
        # What each release freed, oldest first, the last of a list being the next to be taken. Blocks
        # that are in use again, or have been released since, stay listed: that costs less than to
        # search for them, and is swept up in time.
        self._queue: deque[tuple[int, list[int]]] = deque()
        self._queued = 0  # hashes in the queue
        self._releases = 0

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
        return len(self._findable)

    def __contains__(self, block_hash: int) -> bool:
        """Whether a block with this hash can be found."""
        return block_hash in self._findable

    def take(self, blocks: int) -> bool:
        """Take `blocks` if as many are free."""
        if blocks > self.free:
            return False
        self.free -= blocks
        if self._idle > self.free:
            self._evict()
        return True

    def give_back(self, blocks: int) -> None:
        """Free `blocks` taken before that cannot be found."""
        self.free += blocks

    def fit(self, hashes: abc.Sequence[int], blocks: int) -> bool:
        """Whether `blocks` can be had for a sequence whose leading blocks have `hashes`."""
        return blocks <= self.free or self._missing(hashes, blocks) <= self.free

    def take_prefix(self, hashes: abc.Sequence[int], blocks: int) -> int:
        """Take `blocks`, which must fit, for a sequence whose leading blocks have `hashes`: of these as
        many as can be found in a row, whose number is returned."""
        findable = self._findable
        found = woken = 0
        for block_hash in hashes:
            holders = findable.get(block_hash)
            if holders is None:
                break
            if holders > 0:
                findable[block_hash] = holders + 1
            else:
                findable[block_hash] = 1
                woken += 1
            found += 1
        self._idle -= woken
        self.free -= blocks - found + woken
        if self._idle > self.free:
            self._evict()
        return found

    def publish(self, hashes: abc.Sequence[int]) -> list[int]:
        """Let blocks that one sequence holds be found; those of the hashes that now are its own, others
        being those of blocks that someone else holds."""
        findable = self._findable
        own = dict.fromkeys(hashes, 1)
        if not findable.keys().isdisjoint(own):
            for block_hash in hashes:
                holders = findable.get(block_hash, 0)
                if holders > 0:
                    own.pop(block_hash, None)
                elif holders < 0:  # an older copy, which nobody needs any more
                    self._idle -= 1
                    del findable[block_hash]
        findable.update(own)
        return list(own)

    def release(self, held: abc.Sequence[int], others: int, more: abc.Sequence[int] = ()) -> None:
        """Free the blocks of one sequence: those with the hashes `held`, which it found or published, and
        `others`, of which some have the hashes `more` and can be found from now on. Tails will be taken
        before what they follow."""
        findable = self._findable
        self._releases += 1
        stamp = -self._releases
        freed = []
        for block_hash in held:
            holders = findable[block_hash]
            if holders == 1:
                findable[block_hash] = stamp
                freed.append(block_hash)
            else:
                findable[block_hash] = holders - 1
        self.free += others + len(freed)
        self._idle += len(freed)
        for block_hash in more:
            holders = findable.get(block_hash, 0)
            if holders <= 0:
                self._idle += not holders
                findable[block_hash] = stamp
                freed.append(block_hash)
        if freed:
            self._queue.append((stamp, freed))
            self._queued += len(freed)
            if self._queued > 2 * self.total:
                self._sweep()

    def reset(self) -> bool:
        """Forget all hashes, unless a block is held: then nothing is forgotten, as in vLLM."""
        if self.free < self.total:
            return False
        self._findable.clear()
        self._queue.clear()
        self._idle = self._queued = 0
        return True

    def _missing(self, hashes: abc.Sequence[int], blocks: int) -> int:
        """How many of the blocks nobody holds yet."""
        for block_hash in hashes:
            holders = self._findable.get(block_hash)
            if holders is None:
                break
            blocks -= holders > 0
        return blocks

    def _evict(self) -> None:
        """Let go of the oldest findable blocks that have been taken for something else."""
        findable, queue = self._findable, self._queue
        excess = self._idle - self.free
        self._idle = self.free
        while excess:
            stamp, hashes = queue[0]
            before = len(hashes)
            while excess and hashes:
                block_hash = hashes.pop()
                if findable.get(block_hash) == stamp:
                    del findable[block_hash]
                    excess -= 1
            self._queued -= before - len(hashes)
            if not hashes:
                queue.popleft()

    def _sweep(self) -> None:
        """Drop from the queue what has been used since it was listed."""
        findable = self._findable
        current = ((stamp, [h for h in hashes if findable.get(h) == stamp]) for stamp, hashes in self._queue)
        self._queue = deque(entry for entry in current if entry[1])
        self._queued = sum(len(hashes) for _, hashes in self._queue)
