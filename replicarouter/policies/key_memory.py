"""Where keys were placed: the most recent ones, as many as fit."""

from collections import OrderedDict
from dataclasses import dataclass

from replicarouter.fleet.replica import Replica

MOST_KEYS = 65_536
"""Keys that are remembered for each pool."""

BYTES_PER_KEY = 250
"""Memory of one key and its place at most, on CPython 3.11."""


@dataclass(frozen=True, slots=True)
class Place:
    """A key's replica. `displaced`: it is not the one that the key belongs to by its hash, which had too
    much to do when the key came first. `at`: since when, in seconds on the router's clock."""

    replica: Replica
    displaced: bool
    at: float = 0.0


class KeyMemory:
    """The key that was not used for longest is forgotten first."""

    __slots__ = ("_most", "_places", "forgotten")

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: OrderedDict[int, Place] = OrderedDict()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._places)

    def find(self, key: int) -> Place | None:
        """Where a key is; None when it is not known."""
        return self._places.get(key)

    def use(self, key: int) -> None:
        """A key that is known was used."""
        self._places.move_to_end(key)

    def put(self, key: int, replica: Replica, *, displaced: bool = False, at: float = 0.0) -> None:
        """A key has its place there from now on."""
        places = self._places
        places[key] = Place(replica, displaced, at)
        places.move_to_end(key)
        if len(places) > self._most:
            places.popitem(last=False)
            self.forgotten += 1

    def hear(self, key: int, place: Place) -> None:
        """Another worker has placed a key. Of two places the later one counts, and of two of one moment that
        of the higher name, so that all come to the same whatever they hear first."""
        known = self._places.get(key)
        if known is None or (known.at, known.replica.name) < (place.at, place.replica.name):
            self.put(key, place.replica, displaced=place.displaced, at=place.at)
