"""The place of one worker in the common memory: what it writes, and what it may take with others' leave."""

import os
from collections.abc import Collection, Sequence

from replicarouter.commons import heads
from replicarouter.commons.callers import NOBODY, Callers, OwnCallers
from replicarouter.commons.heads import Head
from replicarouter.commons.layout import (
    ALL_BODY_BYTES,
    ALL_QUEUED,
    AWAITED,
    BODY_BYTES,
    CALLER,
    CALLER_HELD,
    HEADS,
    HOLDER,
    LOOKED,
    OUTSTANDING,
    OWN_CALLER,
    OWN_HELD,
    PID,
    QUEUED,
)
from replicarouter.commons.lock import Lock
from replicarouter.commons.place import Place
from replicarouter.commons.shelf import Shelf
from replicarouter.commons.slots import SlotTable


class Seat:
    """One worker's. Indexed by a replica's row: `totals` (over all workers), `rows` (its own), `looks`.

    `gauges`, and `floats` for those that are floats, are its own too, and so is its `shelf` of series;
    `callers` are those of its requests, `slots` the connector slots.
    """

    __slots__ = (
        "_acquire",
        "_all_callers",
        "_bells",
        "_held",
        "_lock",
        "_mark",
        "_own_held",
        "_places",
        "_release",
        "bell",
        "callers",
        "floats",
        "gauges",
        "header",
        "index",
        "looks",
        "place",
        "rows",
        "shelf",
        "slots",
        "totals",
    )

    def __init__(
        self,
        place: Place,
        places: Sequence[Place],
        totals: "memoryview[int]",
        lock: Lock,
        callers: Callers,
        bells: Sequence[int],
    ) -> None:
        self.index = place.index
        self.place = place
        self.totals = totals
        self.header = lock.header
        self.rows = place.rows
        self.looks = place.looks
        self.gauges, self.floats = place.gauges, place.floats
        self.shelf = Shelf(place, lock)
        self.callers = OwnCallers(callers, place.callers)
        self.bell = bells[place.index]
        self._bells = bells
        self._places = places
        self._all_callers = callers
        self._own_held, self._held = place.callers, callers.cells
        self._lock = lock
        self._acquire, self._release = lock.acquire, lock.release
        self._mark = place.index + 1
        self.slots = SlotTable(place, places, totals, lock)
        self.gauges[PID] = os.getpid()

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._places)

    # Room at replicas

    def lease(self, row: int, most: int, caller: int = NOBODY) -> bool:
        """Count one more outstanding request, and for its caller; False, and nothing counted, where `most`
        (0: no limit) are outstanding already, over all workers."""
        header = self.header
        self._acquire()
        header[HOLDER] = self._mark
        try:
            at, totals = row + OUTSTANDING, self.totals
            count = totals[at]
            if most and count >= most:
                return False
            self.rows[at] += 1
            totals[at] = count + 1
            if caller >= 0:
                self._own_held[caller * OWN_CALLER + OWN_HELD] += 1
                self._held[caller * CALLER + CALLER_HELD] += 1
            return True
        finally:
            header[HOLDER] = 0
            self._release()

    def end(self, row: int, caller: int = NOBODY) -> None:
        """One outstanding request less, for its caller too."""
        header = self.header
        self._acquire()
        header[HOLDER] = self._mark
        try:
            at = row + OUTSTANDING
            self.rows[at] -= 1
            self.totals[at] -= 1
            if caller >= 0:
                self._own_held[caller * OWN_CALLER + OWN_HELD] -= 1
                self._held[caller * CALLER + CALLER_HELD] -= 1
        finally:
            header[HOLDER] = 0
            self._release()

    def await_one(self, row: int, by: int) -> None:
        """So many requests more (or less) wait in the queue for this replica alone."""
        with self._lock.held(self._mark):
            self.rows[row + AWAITED] += by
            self.totals[row + AWAITED] += by

    # The queue

    @property
    def others_queue(self) -> bool:
        """Whether any other worker has requests in its queue."""
        return self.header[ALL_QUEUED] != self.gauges[QUEUED]

    def enter_queue(self, most: int | None = None) -> bool:
        """Count one more request in the queue; False, and nothing counted, where `most` wait already, over
        all workers."""
        with self._lock.held(self._mark):
            if most is not None and self.header[ALL_QUEUED] >= most:
                return False
            self.gauges[QUEUED] += 1
            self.header[ALL_QUEUED] += 1
            return True

    def leave_queue(self) -> None:
        """One request less in the queue."""
        with self._lock.held(self._mark):
            self.gauges[QUEUED] -= 1
            self.header[ALL_QUEUED] -= 1

    def tell_heads(self, first: Sequence[Head]) -> None:
        """These are now the ones at the front of its queue. Whoever frees room from now on sees them; room
        that was freed before is seen by whoever looks after this."""
        with self._lock.held(self._mark):
            heads.write(self.place, first)

    def decline(self, models: Collection[int], row: int) -> None:
        """No head of its for these models can use the room at `row` for now."""
        with self._lock.held(self._mark):
            heads.decline(self.place, models, row)

    def heads_for(self, models: Collection[int], row: int, but: Collection[int] = ()) -> list[Head]:
        """The heads of all workers, `but` some seats, that wait for one of these models and can use `row`."""
        return [
            head
            for place in self._places
            if place.gauges[HEADS] and place.index not in but
            for head in heads.read(place)
            if head.model in models and head.may_use(row)
        ]

    def first_of(self, found: Sequence[Head]) -> Head | None:
        """Whose turn it is among these."""
        return heads.first_of(found, self._all_callers.cells, self._all_callers.floats)

    def others_wait(self, model: int) -> bool:
        """Whether another worker tells of somebody who waits for this model."""
        return any(
            head.model == model
            for place in self._places
            if place.gauges[HEADS] and place.index != self.index
            for head in heads.read(place)
        )

    def looked(self) -> None:
        """It has looked at all who wait here; the others see that it lives."""
        self.gauges[LOOKED] += 1

    def looks_of(self, index: int) -> int:
        """How often the worker in that seat has looked."""
        return self._places[index].gauges[LOOKED]

    # Callers

    def caller(self, key: int, book: int) -> int:
        """The place in the table of a caller of ours, `NOBODY` for none; `forget_caller` it in the end."""
        with self._lock.held(self._mark):
            return self.callers.open(key, book)

    def forget_caller(self, index: int) -> None:
        """It has no request here."""
        with self._lock.held(self._mark):
            self.callers.close(index)

    def book(self, key: int) -> int:
        """The place of a book of callers, `NOBODY` for none."""
        with self._lock.held(self._mark):
            return self.callers.open_book(key)

    def begin_waiting(self, index: int, weight: float) -> None:
        """A caller has requests in the queue from now on."""
        with self._lock.held(self._mark):
            self.callers.begin(index, weight)

    def end_waiting(self, index: int) -> None:
        """A caller has none there any more."""
        with self._lock.held(self._mark):
            self.callers.end(index)

    def charge(self, index: int, weight: float) -> None:
        """A request of a caller got its turn."""
        with self._lock.held(self._mark):
            self.callers.charge(index, weight)

    # Bytes of bodies

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies that all workers hold."""
        return self.header[ALL_BODY_BYTES]

    def take_bytes(self, count: int, most: int) -> bool:
        """Hold `count` more bytes of bodies; False, and nothing counted, where that made more than `most`."""
        with self._lock.held(self._mark):
            if self.header[ALL_BODY_BYTES] + count > most:
                return False
            self.gauges[BODY_BYTES] += count
            self.header[ALL_BODY_BYTES] += count
            return True

    def give_bytes(self, count: int) -> None:
        """These are held no longer."""
        with self._lock.held(self._mark):
            self.gauges[BODY_BYTES] -= count
            self.header[ALL_BODY_BYTES] -= count

    # Bells

    def ring(self, index: int) -> None:
        """Let another worker look whether there is room for those that wait there."""
        os.eventfd_write(self._bells[index], 1)

    def ring_others(self) -> None:
        """Let all other workers look."""
        for index in range(self.workers):
            if index != self.index:
                self.ring(index)

    def hush(self) -> None:
        """The own bell (`bell`, to be watched by the loop) has been heard."""
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            return
