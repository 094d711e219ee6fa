"""Keeps the replicas that were born of the settings as the settings say, and leaves all others alone."""

import logging
from collections.abc import Callable, Sequence

from replicarouter.fleet.lifecycle import Duty
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import ADMIN, Replica
from replicarouter.settings import ReplicaSettings

log = logging.getLogger(__name__)


class Roster(FleetListener):
    """Which replicas the settings list. It listens to the fleet: who waits for the name or the URL of a
    replica that is leaving joins when that one has left.

    `changed` is told of replicas that go on with other settings.
    """

    def __init__(self, fleet: Fleet, changed: Callable[[Replica], None]) -> None:
        self._fleet = fleet
        self._changed = changed
        self._waiting: list[ReplicaSettings] = []

    def apply(self, wanted: Sequence[ReplicaSettings]) -> None:
        """Bring the fleet in line: newcomers join, those not listed any more drain and leave, the others
        get what changed. A replica that an operator drained stays so; one that an operator removed
        comes back, for the settings list it."""
        # First of all: a replica that goes at once below must not let in whom an older list named.
        self._waiting = []
        listed = {one.name: one for one in wanted}
        for replica in self._fleet.replicas:
            if replica.origin != ADMIN and not _is_same(replica, listed.get(replica.name)):
                self._fleet.remove(replica)
        present = {replica.name: replica for replica in self._fleet}
        for settings in wanted:
            known = present.get(settings.name)
            if known is not None and known.origin != ADMIN and _is_same(known, settings):
                self._keep(known, settings)
            else:
                self._join(settings)

    def removed(self, replica: Replica) -> None:  # noqa: ARG002
        """Let in who waited for it to leave."""
        waiting, self._waiting = self._waiting, []
        for settings in waiting:
            self._join(settings)

    def _keep(self, replica: Replica, settings: ReplicaSettings) -> None:
        if replica.duty is Duty.REMOVED:
            self._fleet.undrain(replica)
        if replica.settings != settings:
            self._fleet.change(replica, settings)
            self._changed(replica)

    def _join(self, settings: ReplicaSettings) -> None:
        holders = [
            one for one in self._fleet if one.name == settings.name or one.settings.url == settings.url
        ]
        if any(one.origin == ADMIN for one in holders):
            log.info("replica of the admin API kept", extra={"replica": settings.name})
        elif holders:
            self._waiting.append(settings)
        else:
            self._fleet.add(settings, origin=self._fleet.origin)


def _is_same(replica: Replica, settings: ReplicaSettings | None) -> bool:
    """Whether this is the replica that the settings mean: what else they say of it can change in place."""
    if settings is None:
        return False
    before = replica.settings
    return (before.name, before.url, before.role) == (settings.name, settings.url, settings.role)
