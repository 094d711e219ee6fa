"""What each replica of a pool has in its prefix cache, as far as can be told from what it was sent."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

BYTES_PER_BLOCK = 240
"""Memory of one block that somebody holds: its hash, its entry and their places in the table. Measured on
CPython 3.11 with a million blocks (`tests/policies/test_prefix_index.py` checks it)."""

BYTES_PER_HOLDING = 150
"""Memory of one place in one replica's list, measured the same way."""

HALVING, HALVING_EACH = 1024, 16
"""Conversations, or conversations a replica if that is more, after which what was counted before weighs
half."""

POPULAR_SHARE = 0.25
"""Times an even share of the recent conversations that must have had a prefix before it is popular. With 1,
as few as one group of users for each replica could only be dealt out unevenly: things are spread evenly
when they are small beside what one can carry."""

SHARED_BY = 3
"""Conversations beyond which a block is not one conversation's own."""

LEAST_POPULAR = 8
"""Conversations that must have had a block before it can be popular, however large the fleet: an agent
that tries the same thing several times is not a crowd."""


class Block:
    """One block: bit mask of its holders, whether something was seen to follow it, and how many recent
    conversations went their own way behind it, as of an epoch."""

    __slots__ = ("count", "epoch", "followed", "holders")

    def __init__(self, holders: int, epoch: int, *, followed: bool) -> None:
        self.holders = holders
        self.followed = followed
        self.count = 1
        self.epoch = epoch


class Found(NamedTuple):
    """How a prompt's leading blocks are spread. `steps` are (blocks, holders) from the longest match on,
    each naming the replicas whose match ends there, as long as it is longer than `popular`: so many leading
    blocks are so common that they say nothing about where the prompt belongs. `shared` leading blocks,
    those included, are not of one conversation alone."""

    steps: Sequence[tuple[int, int]]
    popular: int
    shared: int


NOTHING = Found((), 0, 0)


class PrefixIndex:
    """The index of one pool; replicas are small numbers, the slots. It takes at most `most_bytes`, shared
    equally between the replicas.

    A block is known by its chained hash, so that equal hashes mean equal prefixes, and whoever holds a block
    holds all those before it. For each block one bit a replica says who holds it, and for each replica an
    LRU list says which blocks it would drop next. Prompts are touched from their tail to their head, as
    engines release them: tails go first, and the rule above stays true. So whatever is asked of a prompt's
    blocks is true up to one of them and false behind it, and is found by halving.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._blocks: dict[int, Block] = {}
        self._held: list[OrderedDict[int, None]] = []
        self._capacity: list[int] = []
        self._newest: list[int | None] = []  # The last block of what was noted last.
        self._free: list[int] = []
        self._epoch = 0
        self._conversations = 0
        self._members = 0
        self._most_blocks = 0
        self._popular_above: float = LEAST_POPULAR  # Conversations beyond which a block is popular.
        self.evicted = 0
        """Blocks that were dropped to stay within the replicas' capacities."""
        self.cut = 0
        """Blocks that were dropped to stay within the bound in bytes, though their replicas may have them."""

    @property
    def bytes(self) -> int:
        """Memory in use, by the measured costs."""
        return BYTES_PER_BLOCK * len(self._blocks) + BYTES_PER_HOLDING * self.entries

    @property
    def entries(self) -> int:
        """Blocks of all replicas."""
        return sum(map(len, self._held))

    def blocks_of(self, slot: int) -> int:
        """How many blocks this replica is taken to hold."""
        return len(self._held[slot])

    # Members

    def open(self, capacity: int) -> int:
        """A slot for a replica whose cache holds `capacity` blocks."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._held)
            self._held.append(OrderedDict())
            self._capacity.append(0)
            self._newest.append(None)
        self._capacity[slot] = capacity
        self._count_members(1)
        return slot

    def close(self, slot: int) -> None:
        """The replica has gone."""
        self.clear(slot)
        self._free.append(slot)
        self._count_members(-1)

    def clear(self, slot: int) -> None:
        """The replica's cache is empty: it has been restarted."""
        held = self._held[slot]
        for hashed in held:
            self._release(slot, hashed)
        held.clear()

    def resize(self, slot: int, capacity: int) -> None:
        """The replica's cache holds so many blocks."""
        self._capacity[slot] = capacity

    def _count_members(self, more: int) -> None:
        self._members += more
        each = BYTES_PER_BLOCK + BYTES_PER_HOLDING
        self._most_blocks = max(1, self._most_bytes // (max(1, self._members) * each))

    # Requests

    def find(self, blocks: Sequence[int]) -> Found:
        """Who holds how many of the leading `blocks`: logarithmic in their number, for each step."""
        table = self._blocks
        if not blocks or blocks[0] not in table:
            return NOTHING
        known = len(blocks) if blocks[-1] in table else leading(table.__contains__, blocks, 1, len(blocks))
        shared = self._above(SHARED_BY, blocks, known)
        popular = self._above(self._popular_above, blocks, shared) if shared else 0
        steps: list[tuple[int, int]] = []
        depth, seen = known, 0
        while depth > popular:
            holders = table[blocks[depth - 1]].holders
            steps.append((depth, holders & ~seen))
            seen = holders
            if table[blocks[popular]].holders == seen:  # As in a conversation that has never moved.
                break
            # As `leading` does it; for each request, a call for each block would cost more than the rest.
            low, high = popular, depth - 1
            while low < high:
                middle = (low + high + 1) // 2
                if table[blocks[middle - 1]].holders != seen:
                    low = middle
                else:
                    high = middle - 1
            depth = low
        return Found(steps, popular, shared)

    def held(self, slot: int, blocks: Sequence[int]) -> int:
        """How many of the leading `blocks` this replica holds."""
        return leading(self._held[slot].__contains__, blocks, 0, len(blocks))

    def _above(self, limit: float, blocks: Sequence[int], known: int) -> int:
        """How many of the `known` leading blocks were counted more often than `limit`."""
        table, recent = self._blocks, self._epoch - 1
        low, high = 0, known
        while low < high:  # As `leading` does it, without its calls.
            middle = (low + high + 1) // 2
            block = table[blocks[middle - 1]]
            if block.count > limit and block.epoch >= recent:
                low = middle
            else:
                high = middle - 1
        return low

    def note(self, slot: int, blocks: Sequence[int]) -> int:
        """The replica was sent a prompt with these leading blocks: from now on it holds them. How many of
        them it held already."""
        held, last = self._held[slot], len(blocks)
        tail = blocks[-1] if blocks else None
        known = last if tail in held else leading(held.__contains__, blocks, 0, last)
        if known < last or self._newest[slot] != tail:  # Else the same prompt was noted last.
            self._newest[slot] = tail
            fresh = known + self._hold(slot, blocks[known:]) if known < last else last
            try:
                # A call of Python's for each of them would take four times as long.
                deque(map(held.move_to_end, reversed(blocks[:known])), 0)
            except KeyError:  # Two different prompts have a hash in common.
                fresh = min(fresh, self._hold(slot, blocks[:known]))
            if fresh < last:
                self._grow(blocks, fresh)
        self._shrink(slot)
        return known

    def _hold(self, slot: int, blocks: Sequence[int]) -> int:
        """The replica holds these blocks, from the last to the first. How many of them somebody held."""
        table, held, epoch = self._blocks, self._held[slot], self._epoch
        bit = 1 << slot
        fresh = at = last = len(blocks)
        for hashed in reversed(blocks):
            at -= 1
            block = table.get(hashed)
            if block is None:
                table[hashed] = Block(bit, epoch, followed=at + 1 < last)
                fresh = at
            else:
                block.holders |= bit
            held[hashed] = None
        return fresh

    def forget(self, slot: int, blocks: Sequence[int]) -> None:
        """The replica does not hold these blocks after all. Nothing may have been noted since for what
        stands behind them."""
        held = self._held[slot]
        for hashed in blocks:
            if hashed in held:
                del held[hashed]
                self._release(slot, hashed)

    def _grow(self, blocks: Sequence[int], fresh: int) -> None:
        """The blocks from `fresh` on are new to everybody. A conversation that goes on grows where it
        ended; another one leaves what was known at a block that something else follows already."""
        if fresh:
            parent = self._blocks[blocks[fresh - 1]]
            if not parent.followed:
                parent.followed = True
                return
        table, epoch = self._blocks, self._epoch
        for hashed in blocks[:fresh]:
            block = table[hashed]
            if block.epoch == epoch:
                block.count += 1
            else:
                block.count = (block.count >> (epoch - block.epoch)) + 1
                block.epoch = epoch
        self._count()

    def _count(self) -> None:
        self._conversations += 1
        members = max(1, self._members)
        if self._conversations >= 2 * max(HALVING, HALVING_EACH * members):
            self._conversations //= 2
            self._epoch += 1
        self._popular_above = max(LEAST_POPULAR, POPULAR_SHARE * self._conversations / members)

    def _shrink(self, slot: int) -> None:
        held, capacity = self._held[slot], self._capacity[slot]
        most = min(capacity, self._most_blocks)
        while len(held) > most:
            hashed, _ = held.popitem(last=False)
            self._release(slot, hashed)
            if len(held) < capacity:
                self.cut += 1
            else:
                self.evicted += 1

    def _release(self, slot: int, hashed: int) -> None:
        block = self._blocks[hashed]
        block.holders &= ~(1 << slot)
        if not block.holders:
            del self._blocks[hashed]


def leading(holds: Callable[[int], bool], blocks: Sequence[int], low: int, high: int) -> int:
    """How many leading blocks something `holds` for, at least `low` and at most `high`, where it holds for
    all up to one of them and for none behind it."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(blocks[middle - 1]):
            low = middle
        else:
            high = middle - 1
    return low


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, from the lowest on."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
