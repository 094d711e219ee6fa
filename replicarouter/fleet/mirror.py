"""The fleet as other processes have it: what is believed of each replica travels, and is adopted there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings


@dataclass(frozen=True, slots=True)
class Portrait:
    """One replica at one moment: its row, its settings, and its beliefs (`Replica.beliefs`)."""

    row: int
    settings: ReplicaSettings
    beliefs: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.settings.name


def portrait(replica: Replica) -> Portrait:
    """What others have to know of it."""
    return Portrait(replica.row, replica.settings, replica.beliefs())


class Mirror:
    """Keeps a fleet as portraits say; the listeners of that fleet hear of changes as elsewhere. `changed` is
    told of replicas that go on under other settings."""

    def __init__(self, fleet: Fleet, changed: Callable[[Replica], None]) -> None:
        self._fleet = fleet
        self._changed = changed

    def adopt(self, portraits: Sequence[Portrait]) -> None:
        """Bring these replicas up to date; new ones join."""
        before = [self._adopt_one(one) for one in portraits]
        self._fleet.regroup()
        for replica, state, room in before:
            self._fleet.retell(replica, state, room)

    def remove(self, name: str, row: int) -> None:
        """A replica has left. One that joined since under its name stays."""
        replica = self._fleet.known(name)
        if replica is not None and replica.row == row:
            self._fleet.dismiss(replica)

    def _adopt_one(self, one: Portrait) -> tuple[Replica, State | None, tuple[Any, ...]]:
        """The replica, its state before, None for a new one, and its roominess before."""
        fleet = self._fleet
        replica = fleet.known(one.name)
        if replica is not None and replica.row != one.row:
            # The one before has left; the word of that is still on its way.
            fleet.dismiss(replica)
            replica = None
        if replica is None:
            replica = fleet.join(one.settings, fleet.origin, one.row)
            replica.take_beliefs(one.beliefs)
            return replica, None, replica.roominess
        state, room, settings = replica.state, replica.roominess, replica.settings
        replica.settings = one.settings
        replica.take_beliefs(one.beliefs)
        if settings != one.settings:
            self._changed(replica)
        return replica, state, room
