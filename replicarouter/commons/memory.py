"""The memory that all processes of one router share, and what may be read of it over all workers.

It is made before the first fork and never grows. Only pages that were written take room.
"""

import mmap
import os
from itertools import accumulate
from multiprocessing import get_context

from replicarouter.commons import layout
from replicarouter.commons.callers import TABLE, Callers
from replicarouter.commons.layout import (
    CELL,
    HEADER,
    HELD_SINCE,
    OUTSTANDING,
    PID,
    ROW,
    ROWS,
    ROWS_USED,
    SUMMED,
)
from replicarouter.commons.lock import Lock, is_running
from replicarouter.commons.place import SEAT, Place
from replicarouter.commons.seat import Seat
from replicarouter.errors import InvalidRequest

_PARTS = (HEADER, ROWS * ROW, TABLE)
_STARTS = (0, *accumulate(_PARTS))

SUMS = (
    (layout.ALL_BODY_BYTES, layout.BODY_BYTES),
    (layout.ALL_QUEUED, layout.QUEUED),
    (layout.ALL_SLOTS, layout.SLOTS_HELD),
    (layout.ALL_WAITING_FOR_SLOT, layout.WAITING_FOR_SLOT),
)
"""Cells of the header, each with the gauge whose sum over all workers it is."""


class Commons:
    """What `workers` processes have in common: `totals` over all of them (a row for each replica, of which
    the columns `SUMMED` are kept), `seats` with what is each one's own, a lock, and a bell for each seat.

    To be made by the process that forks the others. `seat` is for a worker, the rest for the keeper.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        start = _STARTS[-1]
        self.memory = mmap.mmap(-1, (start + workers * SEAT) * CELL)
        whole = memoryview(self.memory)
        self.cells = whole.cast("q")
        self.floats = whole.cast("d")
        self.header = self.cells[:HEADER]
        self.totals = self.cells[_STARTS[1] : _STARTS[2]]
        # A semaphore without a name left behind: 0.1 µs for both steps as long as nobody else is in there.
        self.lock = Lock(self.header, get_context("fork").Lock())
        table = slice(_STARTS[2], _STARTS[3])
        self.callers = Callers(self.cells[table], self.floats[table], self.header)
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self.seats = [
            Place(index, whole[(start + index * SEAT) * CELL : (start + (index + 1) * SEAT) * CELL])
            for index in range(workers)
        ]
        self._free: set[int] = set()
        self.mark = workers + 1
        """The keeper's signature of the lock."""

    def close(self) -> None:
        """Close the bells of this process. The memory goes with the last process that has it."""
        for bell in self.bells:
            os.close(bell)
        self.bells.clear()

    # For a worker

    def seat(self, index: int) -> Seat:
        """Sit down as worker `index`: what its predecessor counted is gone on with."""
        return Seat(self.seats[index], self.seats, self.totals, self.lock, self.callers, self.bells)

    # For the keeper

    def count(self, row: int, column: int) -> int:
        """What all workers have in this column of a replica's row."""
        return sum([seat.rows[row + column] for seat in self.seats])

    def outstanding(self, row: int) -> int:
        """Requests that all workers have outstanding at a replica."""
        return self.totals[row + OUTSTANDING]

    def total(self, column: int) -> int:
        """What all workers have in this column over all replicas."""
        end = self.rows_used * ROW
        return sum([sum(seat.rows[column:end:ROW]) for seat in self.seats])

    def gauge(self, which: int) -> int:
        """An integer gauge, added up over all workers."""
        return sum([seat.gauges[which] for seat in self.seats])

    def held_since(self) -> float:
        """When the oldest of the requests began to be held that are held now, by any worker; 0 for none."""
        return min(filter(None, (seat.floats[HELD_SINCE] for seat in self.seats)), default=0.0)

    @property
    def rows_used(self) -> int:
        """Rows that belong to a replica, or did."""
        return self.header[ROWS_USED]

    def add_row(self) -> int:
        """A row for one more replica; returns its index. Raises `InvalidRequest` when there are too
        many."""
        rows = self.rows_used
        for row in sorted(self._free):
            if self.is_idle(row):
                self._free.discard(row)
                self._forget_looks(row)
                return row
        if rows == ROWS:
            raise InvalidRequest(f"With several workers there is room for {ROWS} replicas.")
        self.header[ROWS_USED] = rows + 1
        return rows * ROW

    def free_row(self, row: int) -> None:
        """Its replica is gone; the row is given away again once no worker has anything in it any more: idle
        connections close late."""
        self._free.add(row)

    def is_idle(self, row: int) -> bool:
        """Whether no worker has anything in this row."""
        return not any(any(seat.rows[row : row + ROW]) for seat in self.seats)

    def vacate(self, index: int) -> None:
        """Worker `index` is dead: nothing is held by it any more, and sums are right again, wherever in its
        work it was cut off. Call it before a successor sits down.

        Who waits for what it held is woken.
        """
        self.lock.seize(index + 1, self.mark, self._is_alive)
        try:
            self.seats[index].clear(self.rows_used)
            self.callers.clear(self.seats[index].callers)
            self._add_up()
        finally:
            self.header[layout.HOLDER] = 0
            self.lock.release()
        self.ring_all()

    def ring_all(self) -> None:
        """Let every worker look whether there is room for those that wait there."""
        for bell in self.bells:
            os.eventfd_write(bell, 1)

    def _is_alive(self, mark: int) -> bool:
        return mark <= self.workers and is_running(self.seats[mark - 1].gauges[PID])

    def _add_up(self) -> None:
        """Make every sum anew from what is each worker's own; under the lock, nobody changes that."""
        for row in range(0, self.rows_used * ROW, ROW):
            for column in SUMMED:
                self.totals[row + column] = self.count(row, column)
        for cell, which in SUMS:
            self.header[cell] = self.gauge(which)
        self.callers.add_up([seat.callers for seat in self.seats])

    def _forget_looks(self, row: int) -> None:
        for seat in self.seats:
            for column in range(ROW):
                seat.looks[row + column] = 0.0
