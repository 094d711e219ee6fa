"""Connector slots where several workers share them: one line for all, though each waits in its process."""

import asyncio

from replicarouter.admission.bell import Poll
from replicarouter.clock import Clock
from replicarouter.commons.deference import Deferences
from replicarouter.commons.layout import ALL_SLOTS, ALL_WAITING_FOR_SLOT
from replicarouter.commons.seat import Seat
from replicarouter.fleet.ledger import Ledger
from replicarouter.proxy.slots import Slots

FEW = 32
"""Of fewer slots for each worker none is set aside."""

Older = tuple[float, int, int]
"""A request that waits at another worker: since when, the row of its replica, its seat."""


class CommonSlots(Slots):
    """The limits are over all workers. A `Bell` must call `look_again`.

    Where there are many slots, and no limit for each replica, a worker sets some aside, so that most requests
    need not ask the others. As soon as anybody waits, all give back what they do not use.
    """

    def __init__(
        self, seat: Seat, *, limit: int, limit_per_replica: int, timeout: float, ledger: Ledger, clock: Clock
    ) -> None:
        super().__init__(
            limit=limit, limit_per_replica=limit_per_replica, timeout=timeout, ledger=ledger, clock=clock
        )
        self.seat = seat
        self._common = seat.slots
        self._header = seat.header
        self._unlimited = not limit and not limit_per_replica
        self._exact = bool(limit_per_replica) or limit < FEW * seat.workers
        self._block = limit // (FEW * seat.workers)
        self._reserved = 0
        self._deferences = Deferences(seat, self._clock)
        self._poll = Poll(self)

    def take_now(self, row: int) -> bool:
        """Take a slot for the replica that owns `row` if one is free, and nobody waits who could have it."""
        if self._unlimited:
            return True
        if self._header[ALL_WAITING_FOR_SLOT] and self._would_overtake(row):
            return False
        if self._exact:
            return self._common.take(row, self.limit, self._limit_per_replica)
        if self._taken >= self._reserved:
            got = self._common.reserve(self._block, self.limit)
            if not got:
                return False
            self._reserved += got
        self._taken += 1
        return True

    def give_back(self, row: int) -> None:
        """Return a slot, to the first waiter who can use it, wherever it waits."""
        if self._unlimited:
            return
        if self._exact:
            self._common.give(row, self.limit, self._limit_per_replica)
        else:
            self._taken -= 1
            if self._reserved - self._taken > 2 * self._block:
                self._release(self._block)
        if self._header[ALL_WAITING_FOR_SLOT]:
            self._serve()

    def anybody_waits(self) -> bool:
        """Whether a request waits for a slot at this worker."""
        return bool(self._waiters)

    def look_again(self) -> None:
        """There may be slots for those that wait here."""
        self._serve()

    def _come(self) -> None:
        self._tell()
        self._poll.start()
        if not self._exact:
            self.seat.ring_others()
        # What was given back before the others could see it is for us to find.
        self._serve()

    def _gone(self) -> None:
        self._tell()

    def _serve(self) -> None:
        """Give slots to those that wait here, as long as nobody waits elsewhere who is older."""
        if self._reserved > self._taken:
            self._release(0)
        while True:
            own = self._first()
            since = own[2] if own is not None else float("inf")
            older = self._older(since)
            if older is not None:
                self.seat.ring(older[2])
                return
            if own is None:
                return
            granted, row, _ = own
            if self._take_one(row):
                self._deferences.forget(row)
                self._waiters.remove(own)
                self._tell()
                granted.set_result(None)

    def _take_one(self, row: int) -> bool:
        if self._exact:
            return self._common.take(row, self.limit, self._limit_per_replica)
        if not self._common.reserve(1, self.limit):
            return False
        self._reserved += 1
        self._taken += 1
        return True

    def _release(self, kept: int) -> None:
        """Set aside no more than so many beside those that are in use."""
        self._common.release(self._reserved - self._taken - kept)
        self._reserved = self._taken + kept

    def _first(self) -> "tuple[asyncio.Future[None], int, float] | None":
        """Who waits here the longest of those that there is a slot for."""
        for waiter in self._waiters:
            if not waiter[0].done() and self._free(waiter[1]):
                return waiter
        return None

    def _older(self, since: float) -> Older | None:
        """Who waits elsewhere for longer, has a slot waiting, and has not let too much time pass."""
        if not self._common.others_wait:
            return None
        for one in sorted(self._common.others()):
            if one[0] >= since:
                break
            if self._free(one[1]) and self._deferences.leaves(one[1], one[2], one[0]):
                return one
        return None

    def _would_overtake(self, row: int) -> bool:
        """Whether a newcomer for `row` would take the slot of one that waits, here or elsewhere."""
        header = self._header
        scarce = self.limit and header[ALL_SLOTS] + header[ALL_WAITING_FOR_SLOT] >= self.limit
        wanted = {waiter[1] for waiter in self._waiters if not waiter[0].done()}
        wanted.update([other for _, other, _ in self._common.others()])
        return any(self._free(one) for one in wanted if scarce or one == row)

    def _tell(self) -> None:
        oldest: dict[int, float] = {}
        for granted, row, since in self._waiters:
            if not granted.done():
                oldest.setdefault(row, since)
        self._common.tell_waiting(len(self._waiters), oldest)

    def _free(self, row: int) -> bool:
        if self._taken < self._reserved:
            return True
        return self._common.is_free(row, self.limit, self._limit_per_replica)
