"""Requests in the queue that wait for one replica, although others may have room: a policy said so."""

import asyncio
from collections.abc import Callable

from replicarouter.admission.queue import Waiter
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Wait

SHORTEST, LONGEST = 0.01, 3600.0
"""Bounds in seconds of what a policy may say: it is not asked again at every turn of the loop."""


class Holds:
    """Who is held for whom. They keep their places in the queue, and hold up nobody behind them.

    `over` is called when a hold has lasted as long as the policy said.
    """

    def __init__(self, over: Callable[[Waiter], None]) -> None:
        self._over = over
        self._held: dict[Waiter, tuple[Replica, asyncio.TimerHandle]] = {}
        self._counts: dict[str, int] = {}

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
        self._counts[waiter.pool.model] = self.count(waiter.pool.model) + 1

    def drop(self, waiter: Waiter) -> None:
        """Hold it no more, if it is held."""
        held = self._held.pop(waiter, None)
        if held is not None:
            held[1].cancel()
            self._counts[waiter.pool.model] -= 1

    def keeps_from(self, waiter: Waiter, replica: Replica) -> bool:
        """Whether it waits for another replica than this one."""
        held = self._held.get(waiter)
        return held is not None and held[0] is not replica

    def of(self, replica: Replica) -> list[Waiter]:
        """Who waits for this replica."""
        return [waiter for waiter, (awaited, _) in self._held.items() if awaited is replica]

    def count(self, model: str) -> int:
        """How many requests for a model are held."""
        return self._counts.get(model, 0)

    def _end(self, waiter: Waiter) -> None:
        self.drop(waiter)
        self._over(waiter)
