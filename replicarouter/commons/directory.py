"""The list of what a worker's cells count, in the common memory: a successor goes on by it, the keeper reads
by it. It is written seldom, by one process, which has the lock then; whoever reads checks what it finds."""

import json
from collections.abc import Iterator

from replicarouter.commons.layout import CELL

Series = tuple[str, tuple[str, ...]]
"""A name and the values of its labels."""

_END = 0
"""The first cell: how many cells are used, this one included."""

_HEAD = 3
"""Cells of a record before its text: offset, number of cells (0: the series is gone), bytes of text."""


class Directory:
    """Records one after the other. `room` is where they lie."""

    def __init__(self, room: "memoryview[int]") -> None:
        self._bytes = room
        self._cells = room.cast("q")

    def read(self) -> dict[Series, tuple[int, int]]:
        """Every series that is counted: its offset and its number of cells."""
        found: dict[Series, tuple[int, int]] = {}
        for at, offset, size, length in self._records():
            if size:
                name, *labels = json.loads(bytes(self._bytes[at * CELL : at * CELL + length]))
                found[name, tuple(labels)] = offset, size
        return found

    def add(self, series: Series, offset: int, size: int) -> bool:
        """Note one more; False when there is no room left even without those that are gone."""
        text = _text(series)
        if not self._fits(text):
            self._tidy()
            if not self._fits(text):
                return False
        self._append(text, offset, size)
        return True

    def drop(self, offset: int) -> None:
        """The series at `offset` is counted no more."""
        for at, where, size, _ in self._records():
            if where == offset and size:
                self._cells[at - _HEAD + 1] = 0

    def _records(self) -> Iterator[tuple[int, int, int, int]]:
        cells = self._cells
        at, end = 1, min(cells[_END], len(cells))
        while at + _HEAD <= end:
            offset, size, length = cells[at : at + _HEAD].tolist()
            at += _HEAD
            yield at, offset, size, length
            at += _cells_for(length)

    def _fits(self, text: bytes) -> bool:
        return max(1, self._cells[_END]) + _HEAD + _cells_for(len(text)) <= len(self._cells)

    def _append(self, text: bytes, offset: int, size: int) -> None:
        cells = self._cells
        at = max(1, cells[_END])
        cells[at], cells[at + 1], cells[at + 2] = offset, size, len(text)
        start = (at + _HEAD) * CELL
        self._bytes[start : start + len(text)] = text
        # Last, so that whoever dies before has written nothing.
        cells[_END] = at + _HEAD + _cells_for(len(text))

    def _tidy(self) -> None:
        """Leave out those that are gone."""
        kept = self.read()
        self._cells[_END] = 1
        for series, (offset, size) in kept.items():
            self._append(_text(series), offset, size)


def _text(series: Series) -> bytes:
    name, labels = series
    return json.dumps([name, *labels]).encode()


def _cells_for(length: int) -> int:
    return -(-length // CELL)
