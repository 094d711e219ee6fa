"""Which replica holds a stored response: follow-ups of the Responses API must meet the one that made it."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from replicarouter.errors import NoReplica, ResponseNotFound
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica

OWNER_GONE = "The replica that held this response is gone; send the conversation anew."

CAPACITY = 65536
"""Responses that are remembered; the least recently used ones are forgotten first."""

NEWS_WITHIN = 0.1
"""Seconds after which a worker has heard of a response that another one has seen, unless something is wrong:
news are sent every 20 ms."""

Made = tuple[str, str]
"""A response's id, and the name of the replica that made it."""


class Owners:
    """Response id → replica, bounded. A response whose replica has left keeps its owner, so that a
    follow-up can be told that it is gone rather than sent to a replica that never heard of it.

    Every worker has its own, and hears of those responses that others have seen, once it is told to `share`.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._owners: dict[str, Replica] = {}
        self._news: deque[Made] | None = None
        self.sharing = False
        """Whether other workers may know more. To be read only."""
        self._awaited: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def learn(self, response_id: str, replica: Replica) -> None:
        """`replica` has made this response."""
        self._keep(response_id, replica)
        if self._news is not None:
            self._news.append((response_id, replica.name))

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

    # Workers

    def share(self) -> None:
        """Collect what is learned from now on for the other workers."""
        self._news = deque(maxlen=self._capacity)
        self.sharing = True

    def news(self) -> Sequence[Made]:
        """What was learned since this was asked last."""
        if not self._news:
            return ()
        made = [*self._news]
        self._news.clear()
        return made

    def all(self) -> Sequence[Made]:
        """Everything that is known, for a worker that has just begun."""
        return [(response_id, replica.name) for response_id, replica in self._owners.items()]

    def hear(self, made: Sequence[Made], fleet: Fleet) -> None:
        """Another worker has learned this. What a replica has made that has left is not known here."""
        replicas = {replica.name: replica for replica in fleet} if made else {}
        for response_id, name in made:
            replica = replicas.get(name)
            if replica is not None:
                self._keep(response_id, replica)
            awaited = self._awaited.pop(response_id, None)
            if awaited is not None:
                awaited.set()

    def may_hear_of(self, response_id: str | None) -> bool:
        """Whether another worker may know of a response that is not known here."""
        return self._news is not None and response_id is not None and response_id not in self._owners

    async def heard_of(self, response_id: str) -> None:
        """Give the news of a response that is not known here time to come: its client may be faster. It
        costs those some time who name one that nobody knows."""
        if not self.may_hear_of(response_id):
            return
        awaited = self._awaited.setdefault(response_id, asyncio.Event())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(NEWS_WITHIN):
                    await awaited.wait()
        finally:
            self._awaited.pop(response_id, None)

    def _keep(self, response_id: str, replica: Replica) -> None:
        self._owners.pop(response_id, None)
        self._owners[response_id] = replica
        if len(self._owners) > self._capacity:
            del self._owners[next(iter(self._owners))]
