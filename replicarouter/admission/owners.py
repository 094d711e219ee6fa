"""Which replica holds a stored response: follow-ups of the Responses API must meet the one that made it."""

from replicarouter.fleet.replica import Replica

CAPACITY = 65536
"""Responses that are remembered; the least recently used ones are forgotten first."""


class Owners:
    """Response id → replica, bounded. A response whose replica has left keeps its owner, so that a
    follow-up can be told that it is gone rather than sent to a replica that never heard of it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._owners: dict[str, Replica] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def learn(self, response_id: str, replica: Replica) -> None:
        """`replica` has made this response."""
        self._owners.pop(response_id, None)
        self._owners[response_id] = replica
        if len(self._owners) > self._capacity:
            del self._owners[next(iter(self._owners))]

    def find(self, response_id: str) -> Replica | None:
        """Who made this response; None when it is not known."""
        owner = self._owners.pop(response_id, None)
        if owner is not None:
            self._owners[response_id] = owner
        return owner
