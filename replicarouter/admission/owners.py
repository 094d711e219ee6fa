"""Which replica holds a stored response: follow-ups of the Responses API must meet the one that made it."""

from replicarouter.errors import NoReplica, ResponseNotFound
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica

OWNER_GONE = "The replica that held this response is gone; send the conversation anew."

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

    def destination(self, fleet: Fleet, response_id: str, model: str | None) -> tuple[Pool, Replica | None]:
        """Where a request goes that builds upon a stored response: its pool, and the one replica that will
        do. Nobody in particular where the owner is not known, or serves another model than is named.

        Raises what `Fleet.pool_for` raises, and `ResponseNotFound` when the owner has left the fleet, or
        when neither owner nor model say which of several pools it could be.
        """
        owner = self.find(response_id)
        if owner is None:
            if model is None and len(fleet.pools) > 1:
                raise ResponseNotFound("This router knows no such response; send the conversation anew.")
            return fleet.pool_for(model), None
        if owner not in fleet:
            raise ResponseNotFound(OWNER_GONE)
        if model is not None:
            pool = fleet.pool_for(model)
            return pool, owner if owner in pool.replicas else None
        for pool in fleet.pools.values():
            if owner in pool.replicas:
                return pool, owner
        raise NoReplica("The replica that holds this response is not ready; try again shortly.")
