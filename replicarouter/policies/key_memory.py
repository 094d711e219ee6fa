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
    much to do when the key came first."""

    replica: Replica
    displaced: bool


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

    def put(self, key: int, replica: Replica, *, displaced: bool = False) -> None:
        """A key has its place there from now on."""
        places = self._places
        places[key] = Place(replica, displaced)
        places.move_to_end(key)
        if len(places) > self._most:
            places.popitem(last=False)
            self.forgotten += 1
