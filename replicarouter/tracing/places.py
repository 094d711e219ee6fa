"""Where the replicas are that spans name."""

from typing import NamedTuple
from urllib.parse import urlsplit

from replicarouter.errors import UnknownReplica
from replicarouter.fleet.registry import Fleet

_PORTS = {"http": 80, "https": 443}


class Place(NamedTuple):
    """Where a replica is, and which engine runs there, as far as that is known."""

    host: str
    port: int
    engine: str


class Places:
    """Finds replicas by name, from any thread."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def find(self, name: str) -> Place | None:
        """The place of the replica of this name; None when it has left."""
        try:
            replica = self._fleet.find(name)
        except UnknownReplica:
            return None
        parts = urlsplit(replica.settings.url)
        return Place(parts.hostname or "", parts.port or _PORTS[parts.scheme], replica.engine)
