"""What a rule remembers of the replicas: which blocks it sent where, as far as they can still be there."""

from collections.abc import Sequence

from replicarouter.fleet.replica import Replica
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.block_lru import BlockLru
from replicarouter.replay.trace_line import TOKEN_CHARACTERS

UNKNOWN_BLOCKS = 31_250
"""Blocks of a replica that does not say how many it has: llm-d's default of its approximate index."""


def block_tokens(request: InferenceRequest) -> int:
    """Tokens of one of the request's blocks."""
    return request.block_characters // TOKEN_CHARACTERS


def prompt_tokens(request: InferenceRequest) -> int:
    """Tokens of its prompt."""
    return request.characters // TOKEN_CHARACTERS


class Holders:
    """Which replicas have which blocks, as a set of bits for each block; by the replicas' rows."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, blocks: Sequence[int], row: int) -> None:
        """The replica has these blocks now."""
        bits, mine = self._bits, 1 << row
        for block in blocks:
            bits[block] = bits.get(block, 0) | mine

    def drop(self, blocks: Sequence[int], row: int) -> None:
        """The replica has these no more."""
        bits, others = self._bits, ~(1 << row)
        for block in blocks:
            left = bits.get(block, 0) & others
            if left:
                bits[block] = left
            else:
                bits.pop(block, None)

    def leading(self, blocks: Sequence[int]) -> dict[int, int]:
        """For each replica that has the first block, by row: how many of the first blocks it has."""
        found: dict[int, int] = {}
        alive = -1
        for depth, block in enumerate(blocks):
            still = self._bits.get(block, 0) & alive
            _note(found, alive & ~still if depth else 0, depth)
            alive = still
            if not alive:
                return found
        _note(found, alive if blocks else 0, len(blocks))
        return found


def _note(found: dict[int, int], bits: int, depth: int) -> None:
    while bits:
        lowest = bits & -bits
        found[lowest.bit_length() - 1] = depth
        bits ^= lowest


class Memory:
    """What each replica's cache should hold: the prompts it was sent, the oldest forgotten when its engine
    has no more room."""

    __slots__ = ("_caches", "_holders")

    def __init__(self) -> None:
        self._holders = Holders()
        self._caches: dict[int, BlockLru] = {}

    def sent(self, request: InferenceRequest, replica: Replica) -> None:
        """The replica computes this prompt."""
        row = replica.row
        cache = self._caches.get(row)
        if cache is None:
            cache = self._caches[row] = BlockLru(UNKNOWN_BLOCKS)
        reading = replica.reading
        if reading is not None and reading.engine.kv_capacity:
            cache.capacity = int(reading.engine.kv_capacity) // block_tokens(request)
        self._holders.add(request.blocks, row)
        self._holders.drop(cache.insert(request.blocks), row)

    def leading(self, request: InferenceRequest) -> dict[int, int]:
        """For each replica with a beginning of this prompt, by row: its blocks."""
        return self._holders.leading(request.blocks)

    def forget(self, replica: Replica) -> None:
        """It is gone."""
        cache = self._caches.pop(replica.row, None)
        if cache is not None:
            self._holders.drop(cache.blocks(), replica.row)


class Turnstile:
    """Lets equal replicas take turns: the search for the least begins behind the last choice."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = 0

    def least(self, costs: Sequence[float]) -> int:
        """The place of the least cost."""
        count = len(costs)
        least = min(costs)
        start = self._start % count
        place = next(index % count for index in range(start, start + count) if costs[index % count] == least)
        self._start = place + 1
        return place
