"""How late the event loop runs what is due: the first sign of a router out of CPU."""

import asyncio

from replicarouter.clock import Clock

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
            due = self._clock() + PERIOD
            await asyncio.sleep(PERIOD)
            self._recent[self._turn % len(self._recent)] = max(0.0, self._clock() - due)
            self._turn += 1
