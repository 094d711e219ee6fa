"""Requests in the queue that wait for one replica, although others may have room: a policy said so."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from replicarouter.admission.queue import Waiter
from replicarouter.commons.layout import AWAITED
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Wait

SHORTEST, LONGEST = 0.01, 3600.0
"""Bounds in seconds of what a policy may say: it is not asked again at every turn of the loop."""

if TYPE_CHECKING:
    from replicarouter.commons.seat import Seat


class HeldByAll(Mapping[Replica, int]):
    """How many are held for each replica by all workers; those that some are held for here are listed."""

    def __init__(self, seat: "Seat", own: Mapping[Replica, int]) -> None:
        self._totals = seat.totals
        self._own = own

    def __getitem__(self, replica: Replica) -> int:
        return self._totals[replica.row + AWAITED]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


class Holds:
    """Who is held for whom. They keep their places in the queue, and hold up nobody behind them.

    `over` is called when a hold has lasted as long as the policy said. With a `seat`, those of all workers
    count.
    """

    def __init__(self, over: Callable[[Waiter], None], seat: "Seat | None" = None) -> None:
        self._over = over
        self._seat = seat
        self._held: dict[Waiter, tuple[Replica, asyncio.TimerHandle]] = {}
        self._counts: dict[Replica, int] = {}
        self.counts: Mapping[Replica, int] = self._counts if seat is None else HeldByAll(seat, self._counts)
        """How many are held for each replica, if any are. To be read only."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiter: Waiter, wait: Wait, *, most: float = LONGEST) -> None:
        """Let it wait for a replica, `most` seconds at most, and no more for the one before if there was
        one."""
        self.drop(waiter)
        # In this order `max` is right for a number that is none, too.
        seconds = min(max(SHORTEST, wait.seconds), most)
        timer = asyncio.get_running_loop().call_later(seconds, self._end, waiter)
        self._held[waiter] = wait.replica, timer
        self._counts[wait.replica] = self._counts.get(wait.replica, 0) + 1
        if self._seat is not None:
            self._seat.await_one(wait.replica.row, 1)

    def drop(self, waiter: Waiter) -> None:
        """Hold it no more, if it is held."""
        held = self._held.pop(waiter, None)
        if held is None:
            return
        replica, timer = held
        timer.cancel()
        left = self._counts[replica] - 1
        if left:
            self._counts[replica] = left
        else:
            del self._counts[replica]
        if self._seat is not None:
            self._seat.await_one(replica.row, -1)

    def has_place(self, replica: Replica) -> bool:
        """Whether one more may be held for this replica: no more than it takes requests at a time, for the
        last of them would wait for as long as a whole request takes, and longer."""
        return self.counts.get(replica, 0) < max(1, replica.most)

    def awaited_by(self, waiter: Waiter) -> Replica | None:
        """Whom it is held for; None when it is not held."""
        held = self._held.get(waiter)
        return None if held is None else held[0]

    def of(self, replica: Replica) -> list[Waiter]:
        """Who waits for this replica."""
        return [waiter for waiter, (awaited, _) in self._held.items() if awaited is replica]

    def _end(self, waiter: Waiter) -> None:
        self.drop(waiter)
        self._over(waiter)
