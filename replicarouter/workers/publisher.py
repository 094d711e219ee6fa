"""Tells the workers what the keeper believes of the fleet, as soon as it is something else than before."""

import asyncio
from collections.abc import Callable
from typing import Any

from replicarouter.fleet.health import Health
from replicarouter.fleet.mirror import Portrait, portrait
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.workers.bus import packed

Broadcast = Callable[[bytes], None]
"""Sends a message to every worker."""


class Publisher(FleetListener):
    """Compares what is believed with what was told. It listens to the fleet; what nobody tells of, like a new
    reading, is found when `publish` is called."""

    def __init__(self, fleet: Fleet, health: Health, broadcast: Broadcast) -> None:
        self._fleet = fleet
        self._health = health
        self._broadcast = broadcast
        self._told: dict[Replica, tuple[Any, ...]] = {}
        self._due = False

    def everything(self) -> list[Portrait]:
        """All that a new worker has to know."""
        return [portrait(replica) for replica in self._fleet]

    def publish(self) -> None:
        """Tell what has changed."""
        changed = []
        for replica in self._fleet:
            replica.on_record = self._health.remembers(replica)
            beliefs = (replica.settings, *replica.beliefs())
            if self._told.get(replica) != beliefs:
                self._told[replica] = beliefs
                changed.append(portrait(replica))
        if changed:
            self._broadcast(packed("fleet", changed))

    def soon(self) -> None:
        """Publish at the end of this turn of the loop, when all has been said that belongs together."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._publish_now)

    def ready(self, replica: Replica) -> None:  # noqa: ARG002
        """It takes requests."""
        self.soon()

    def widened(self, replica: Replica) -> None:  # noqa: ARG002
        """It takes more, or others."""
        self.soon()

    def lost(self, replica: Replica) -> None:  # noqa: ARG002
        """It takes no more: at once, since every request that is sent there is one too many."""
        self.publish()

    def added(self, replica: Replica) -> None:  # noqa: ARG002
        """It has joined."""
        self.soon()

    def removed(self, replica: Replica) -> None:
        """It has left."""
        self._told.pop(replica, None)
        self._broadcast(packed("removed", replica.name, replica.row))

    def _publish_now(self) -> None:
        self._due = False
        self.publish()
