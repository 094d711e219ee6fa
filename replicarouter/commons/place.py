"""The cells of one worker in the common memory, as everybody may read them."""

from collections.abc import Mapping
from itertools import accumulate, pairwise

from replicarouter.commons import layout
from replicarouter.commons.directory import Directory, Series
from replicarouter.commons.layout import (
    ARENA,
    CELL,
    DIRECTORY,
    GAUGES,
    HEAD,
    KEPT_GAUGES,
    LEVELS,
    MOST_HEADS,
    MOST_SLOT_HEADS,
    ROW,
    ROWS,
    SERIES,
    SLOT_HEAD,
)

_PARTS = (
    GAUGES,
    MOST_HEADS * HEAD,
    MOST_SLOT_HEADS * SLOT_HEAD,
    ROWS * ROW,
    ROWS * ROW,
    layout.CALLERS * layout.OWN_CALLER,
    ARENA,
    DIRECTORY,
)
_STARTS = (0, *accumulate(_PARTS))

SEAT = -(-_STARTS[-1] // 512) * 512
"""Cells of one worker: whole pages, so that none has cells of two."""


class Place:
    """What the worker in seat `index` writes, and nobody else, its dying aside (`clear`).

    `gauges` and `floats` are the same cells, read as integers and as floats; so are `arena` and `times`.
    `rows` and `looks` are indexed by a replica's row.
    """

    def __init__(self, index: int, room: "memoryview[int]") -> None:
        self.index = index
        self.bytes = room
        cells, floats = room.cast("q"), room.cast("d")
        parts = [slice(begin, end) for begin, end in pairwise(_STARTS)]
        self.gauges, self.floats = cells[parts[0]], floats[parts[0]]
        self.heads, self.head_floats = cells[parts[1]], floats[parts[1]]
        self.slot_heads, self.slot_head_floats = cells[parts[2]], floats[parts[2]]
        self.rows = cells[parts[3]]
        self.looks = floats[parts[4]]
        self.callers = cells[parts[5]]
        self.arena, self.times = cells[parts[6]], floats[parts[6]]
        self._arena_start = _STARTS[6]
        self.directory = Directory(room[_STARTS[7] * CELL : _STARTS[8] * CELL])
        self._seen = 0
        self._series: dict[Series, tuple[int, int]] = {}

    def series(self) -> Mapping[Series, tuple[int, int]]:
        """What is counted here: (name, labels) → offset and number of cells in `arena`.

        The same object as long as no series came or went. Nothing has to be told for it, so no count of a
        worker that dies is lost.
        """
        now = self.gauges[SERIES]
        if now != self._seen or now & 1:
            self._series = self.directory.read()
            self._seen = now
        return self._series

    def clear(self, rows: int) -> None:
        """Its worker has died: it holds nothing of the first `rows` replicas, nobody waits there, and no
        gauge of it is left. What it counted stays. The caller must have the lock."""
        for which in range(GAUGES):
            if which not in KEPT_GAUGES:
                self.gauges[which] = 0
        self.rows[: rows * ROW] = _zeros(rows * ROW)
        self.looks[: rows * ROW] = memoryview(bytes(rows * ROW * CELL)).cast("d")
        self.arena[:LEVELS] = _zeros(LEVELS)
        if self.gauges[SERIES] & 1:
            self.gauges[SERIES] += 1


def _zeros(count: int) -> "memoryview[int]":
    return memoryview(bytes(count * CELL)).cast("q")
