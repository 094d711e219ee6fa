"""What a worker has learned, on its way to the others."""

import asyncio

from replicarouter.admission.desk import Desks
from replicarouter.admission.owners import Owners
from replicarouter.workers.bus import Bus, packed

NEWS_PERIOD = 0.02
"""Seconds after which the other workers hear what was learned here."""


class Teller:
    """Tells, by way of the keeper, what policies and owners have learned: `NEWS_PERIOD` after the first of
    it. A worker that learns nothing is not woken for it."""

    def __init__(self, worker: int, bus: Bus, desks: Desks, owners: Owners) -> None:
        self._worker = worker
        self._bus = bus
        self._desks = desks
        self._owners = owners
        self._goes: asyncio.TimerHandle | None = None

    def stir(self) -> None:
        """There may be news."""
        if self._goes is None:
            self._goes = asyncio.get_running_loop().call_later(NEWS_PERIOD, self._tell)

    def _tell(self) -> None:
        self._goes = None
        told, made = self._desks.news(), self._owners.news()
        if told or made:
            self._bus.send("pass on", packed("news", self._worker, told, made))
