"""Which replica holds a stored response: follow-ups of the Responses API must meet the one that made it."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from replicarouter.errors import NoReplica, ResponseNotFound
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica

OWNER_GONE = "The replica that held this response is gone; send the conversation anew."

CAPACITY = 65536
"""Responses that are remembered; the least recently used ones are forgotten first."""

Made = tuple[str, str]
"""A response's id, and the name of the replica that made it."""

AskOthers = Callable[[str], Awaitable[Sequence[Made]]]
"""What other workers know of a response; nothing when none of them knows it, or tells in time."""


class Owners:
    """Response id → replica, bounded. A response whose replica has left keeps its owner, so that a
    follow-up can be told that it is gone rather than sent to a replica that never heard of it.

    Every worker has its own, and hears of those responses that others have seen, once it is told to `share`.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        # By its name: a replica that another worker has seen make it, and that has left since.
        self._owners: dict[str, Replica | str] = {}
        self._news: deque[Made] | None = None
        self.sharing = False
        """Whether other workers may know more. To be read only."""
        self._ask_others: AskOthers | None = None
        self._stir: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._owners)

    def learn(self, response_id: str, replica: Replica) -> None:
        """`replica` has made this response."""
        self._keep(response_id, replica)
        if self._news is not None:
            self._news.append((response_id, replica.name))
        if self._stir is not None:
            self._stir()

    def find(self, response_id: str) -> Replica | None:
        """Who made this response; None when it is not known."""
        owner = self._owners.pop(response_id, None)
        if owner is not None:
            self._owners[response_id] = owner
        return None if isinstance(owner, str) else owner

    def maker(self, response_id: str) -> Sequence[Made]:
        """The same, as other workers are told of it."""
        owner = self._owners.get(response_id)
        return () if owner is None else [(response_id, owner if isinstance(owner, str) else owner.name)]

    def destination(self, fleet: Fleet, response_id: str, model: str | None) -> tuple[Pool, Replica | None]:
        """Where a request goes that builds upon a stored response: its pool, and the one replica that will
        do. Nobody in particular where the owner is not known, or serves another model than is named.

        Raises what `Fleet.pool_for` raises, and `ResponseNotFound` when the owner has left the fleet, or
        when neither owner nor model say which of several pools it could be.
        """
        owner = self.find(response_id)
        if owner is None:
            if response_id in self._owners:
                raise ResponseNotFound(OWNER_GONE)
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

    def share(self, ask_others: AskOthers | None = None, stir: Callable[[], None] | None = None) -> None:
        """Collect what is learned from now on for the other workers, and ask them for what is not known.
        `stir` is called when there are `news`."""
        self._news = deque(maxlen=self._capacity)
        self.sharing = True
        self._ask_others, self._stir = ask_others, stir

    def news(self) -> Sequence[Made]:
        """What was learned since this was asked last."""
        if not self._news:
            return ()
        made = [*self._news]
        self._news.clear()
        return made

    def all(self) -> Sequence[Made]:
        """Everything that is known, for a worker that has just begun."""
        return [made for response_id in self._owners for made in self.maker(response_id)]

    def hear(self, made: Sequence[Made], fleet: Fleet) -> None:
        """Another worker has learned this."""
        for response_id, name in made:
            self._keep(response_id, fleet.known(name) or name)

    def may_hear_of(self, response_id: str | None) -> bool:
        """Whether another worker may know of a response that is not known here."""
        return self._news is not None and response_id is not None and response_id not in self._owners

    async def hear_of(self, response_id: str, fleet: Fleet) -> None:
        """Ask the others for a response that is not known here: its client may be faster than the news."""
        if self._ask_others is not None and self.may_hear_of(response_id):
            self.hear(await self._ask_others(response_id), fleet)

    def _keep(self, response_id: str, replica: Replica | str) -> None:
        self._owners.pop(response_id, None)
        self._owners[response_id] = replica
        if len(self._owners) > self._capacity:
            del self._owners[next(iter(self._owners))]
