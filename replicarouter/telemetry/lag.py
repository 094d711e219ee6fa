"""How late the event loop runs what is due: the first sign of a router out of CPU."""

import asyncio
from math import ceil

from replicarouter.clock import Clock
from replicarouter.tasks import REST

PERIOD = 0.25
"""Seconds between two looks."""


class LoopLag:
    """The largest delay of the last few looks, in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent = [0.0] * 8
        self._turn = 0

    @property
    def seconds(self) -> float:
        """The largest recent delay."""
        return max(self._recent)

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            now = self._clock()
            # When other background work is due too, so that an idle process wakes once for all of it.
            due = PERIOD * ceil(now / PERIOD + REST)
            await asyncio.sleep(due - now)
            self._recent[self._turn % len(self._recent)] = max(0.0, self._clock() - due)
            self._turn += 1
