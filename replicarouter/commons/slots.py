"""Connector slots over all workers: how many are taken, and who waits for one."""

from collections.abc import Mapping, Sequence

from replicarouter.commons.layout import (
    ALL_SLOTS,
    ALL_WAITING_FOR_SLOT,
    HOLDER,
    MOST_SLOT_HEADS,
    SLOT_HEAD,
    SLOT_HEAD_ROW,
    SLOT_HEAD_SINCE,
    SLOT_HEADS,
    SLOTS,
    SLOTS_HELD,
    WAITING_FOR_SLOT,
)
from replicarouter.commons.lock import Lock
from replicarouter.commons.place import Place


class SlotTable:
    """One worker's hand on the slots. A limit of 0 is none."""

    __slots__ = (
        "_acquire",
        "_gauges",
        "_header",
        "_index",
        "_lock",
        "_mark",
        "_place",
        "_places",
        "_release",
        "_rows",
        "_totals",
    )

    def __init__(self, place: Place, places: Sequence[Place], totals: "memoryview[int]", lock: Lock) -> None:
        self._place = place
        self._places = places
        self._rows = place.rows
        self._gauges = place.gauges
        self._totals = totals
        self._header = lock.header
        self._lock = lock
        self._acquire, self._release = lock.acquire, lock.release
        self._mark = place.index + 1

    def reserve(self, count: int, most: int) -> int:
        """Set up to `count` slots aside for this worker, of `most` in all; returns how many it got."""
        with self._lock.held(self._mark):
            got = min(count, most - self._header[ALL_SLOTS])
            if got <= 0:
                return 0
            self._header[ALL_SLOTS] += got
            self._place.gauges[SLOTS_HELD] += got
            return got

    def release(self, count: int) -> None:
        """So many of those that were set aside are for all again."""
        with self._lock.held(self._mark):
            self._header[ALL_SLOTS] -= count
            self._place.gauges[SLOTS_HELD] -= count

    def take(self, row: int, most: int, most_here: int) -> bool:
        """Take one slot for a connection to the replica of `row`; False where `most` are taken in all, or
        `most_here` to this replica. What has no limit is not counted."""
        header = self._header
        self._acquire()
        header[HOLDER] = self._mark
        try:
            at, totals = row + SLOTS, self._totals
            if (most and header[ALL_SLOTS] >= most) or (most_here and totals[at] >= most_here):
                return False
            if most:
                self._gauges[SLOTS_HELD] += 1
                header[ALL_SLOTS] += 1
            if most_here:
                self._rows[at] += 1
                totals[at] += 1
            return True
        finally:
            header[HOLDER] = 0
            self._release()

    def give(self, row: int, most: int, most_here: int) -> None:
        """Give one back that was taken so, under the same limits."""
        header = self._header
        self._acquire()
        header[HOLDER] = self._mark
        try:
            if most:
                self._gauges[SLOTS_HELD] -= 1
                header[ALL_SLOTS] -= 1
            if most_here:
                at = row + SLOTS
                self._rows[at] -= 1
                self._totals[at] -= 1
        finally:
            header[HOLDER] = 0
            self._release()

    def is_free(self, row: int, most: int, most_here: int) -> bool:
        """Whether there is a slot for this replica at this moment."""
        if most and self._header[ALL_SLOTS] >= most:
            return False
        return not most_here or self._totals[row + SLOTS] < most_here

    @property
    def others_wait(self) -> bool:
        """Whether any other worker has requests that wait for a slot."""
        return self._header[ALL_WAITING_FOR_SLOT] != self._gauges[WAITING_FOR_SLOT]

    def tell_waiting(self, count: int, oldest: Mapping[int, float]) -> None:
        """So many wait here for a slot; `oldest` says since when the first of each row does."""
        place = self._place
        with self._lock.held(self._mark):
            self._header[ALL_WAITING_FOR_SLOT] += count - place.gauges[WAITING_FOR_SLOT]
            place.gauges[WAITING_FOR_SLOT] = count
            told = list(oldest.items())[:MOST_SLOT_HEADS]
            for index, (row, since) in enumerate(told):
                place.slot_heads[index * SLOT_HEAD + SLOT_HEAD_ROW] = row
                place.slot_head_floats[index * SLOT_HEAD + SLOT_HEAD_SINCE] = since
            place.gauges[SLOT_HEADS] = len(told)

    def others(self) -> list[tuple[float, int, int]]:
        """Who waits elsewhere, the oldest of each worker and row: since when, at which row, in which seat."""
        return [
            (
                place.slot_head_floats[at + SLOT_HEAD_SINCE],
                place.slot_heads[at + SLOT_HEAD_ROW],
                place.index,
            )
            for place in self._places
            if place is not self._place
            for at in range(0, place.gauges[SLOT_HEADS] * SLOT_HEAD, SLOT_HEAD)
        ]
