"""The fleet: all replicas, and the pools (model × role) they form. Membership is kept, not recomputed."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from replicarouter.errors import InvalidRequest, ModelNotFound, NoReplica, ReplicaExists, UnknownReplica
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Duty, Event, Order, State, move, obey
from replicarouter.fleet.replica import ADMIN, FILE, Replica
from replicarouter.settings import ReplicaSettings

log = logging.getLogger(__name__)

MOST_SHOWN = 500
"""Characters of a replica's list of models that the log tells."""

QUIET = 2.0
"""Seconds without a byte after which a replica that is to be removed is asked again how it is."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Pool:
    """The replicas of one model in one role. `ready` is a subset of `replicas`, in the same order;
    `bounded` says that some of them may be full."""

    model: str
    role: str = "both"
    replicas: list[Replica] = field(default_factory=list)
    ready: list[Replica] = field(default_factory=list)
    bounded: bool = False


class FleetListener:
    """Who has to know about changes of the fleet; a subclass overrides what it has to know."""

    def ready(self, replica: Replica) -> None:
        """`replica` takes requests: it has come in."""

    def widened(self, replica: Replica) -> None:
        """`replica`, which is ready, takes more requests than a moment ago, or others."""

    def lost(self, replica: Replica) -> None:
        """`replica` takes no requests any more: it has gone out, or is to."""

    def added(self, replica: Replica) -> None:
        """`replica` has joined the fleet."""

    def removed(self, replica: Replica) -> None:
        """`replica` has left the fleet, and has no request any more."""


class Fleet:
    """All replicas the router knows, by name, and their pools by model. `origin` is that of those which the
    settings list."""

    def __init__(
        self, replicas: Sequence[ReplicaSettings], ledger: Ledger, *, most: int = 0, origin: str = FILE
    ) -> None:
        self.ledger = ledger
        self.origin = origin
        self.listeners: list[FleetListener] = []
        self.replicas: list[Replica] = []
        self.pools: dict[str, Pool] = {}
        self._known: WeakValueDictionary[str, Pool] = WeakValueDictionary()
        self._most = most
        self._by_name: dict[str, Replica] = {}
        for settings in replicas:
            self.join(settings, origin)
        self.regroup()

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.replicas)

    def __contains__(self, replica: Replica) -> bool:
        return self._by_name.get(replica.name) is replica

    # Membership

    def known(self, name: str) -> Replica | None:
        """The replica of this name, if there is one."""
        return self._by_name.get(name)

    def find(self, name: str) -> Replica:
        """The replica of this name; raises `UnknownReplica`."""
        replica = self._by_name.get(name)
        if replica is None:
            raise UnknownReplica(f"There is no replica called {_shown(name)}.")
        return replica

    def add(self, settings: ReplicaSettings, *, origin: str = ADMIN) -> Replica:
        """Take in one more replica, to be probed before it gets requests.

        Raises `ReplicaExists` when its name or URL is taken, be it by one that is about to leave.
        """
        for other in self.replicas:
            if settings.name == other.name or settings.url == other.settings.url:
                leaving = ", which still finishes its last requests" if other.duty is Duty.REMOVED else ""
                raise ReplicaExists(f"This name or URL is that of the replica {_shown(other.name)}{leaving}.")
        replica = self.join(settings, origin)
        self.regroup()
        log.info("replica added", extra={"replica": replica.name, "origin": origin})
        for listener in self.listeners:
            listener.added(replica)
        return replica

    def drain(self, replica: Replica) -> None:
        """Give it nothing new; what runs there goes on."""
        self._order(replica, Order.DRAIN)

    def undrain(self, replica: Replica) -> None:
        """Give it requests again; one that was to be removed stays."""
        self._order(replica, Order.UNDRAIN)

    def remove(self, replica: Replica) -> bool:
        """Let it go. True: it is gone now. False: it leaves by itself with its last request."""
        self._order(replica, Order.REMOVE)
        self.idle(replica)
        return replica not in self

    def idle(self, replica: Replica) -> None:
        """Its last request has ended: if it is to be removed, it leaves now."""
        if replica.duty is not Duty.REMOVED or replica.outstanding or replica not in self:
            return
        log.info("replica removed", extra={"replica": replica.name})
        self.dismiss(replica)
        self.ledger.free_row(replica.row)

    def dismiss(self, replica: Replica) -> None:
        """It has left: forget it, and tell the listeners."""
        del self._by_name[replica.name]
        self.replicas = [other for other in self.replicas if other is not replica]
        self.regroup()
        for listener in self.listeners:
            listener.removed(replica)

    def leaves_alone(self, replica: Replica, now: float) -> bool:
        """Whether nobody need ask how it is: it is to be removed, and still delivers what it owes."""
        if replica.duty is not Duty.REMOVED:
            return False
        return now - self.ledger.last_byte_from(replica.name) <= QUIET

    def change(self, replica: Replica, settings: ReplicaSettings) -> None:
        """Go on with other settings of the same name, URL and role; what runs there is not touched."""
        replica.settings, replica.weight = settings, settings.weight
        own = settings.max_outstanding
        replica.most = self._most if own is None else own
        if settings.models:
            replica.cards = tuple(_card(model) for model in settings.models)
        self.regroup()
        log.info("replica changed", extra={"replica": replica.name})
        self._widen(replica)

    def limit_each(self, most: int) -> None:
        """Let replicas that have no limit of their own have `most` outstanding requests; 0 for no limit."""
        self._most = most
        for replica in self.replicas:
            if replica.settings.max_outstanding is None:
                replica.most = most
        self.regroup()
        for replica in self.replicas:
            self._widen(replica)

    def join(self, settings: ReplicaSettings, origin: str, row: int | None = None) -> Replica:
        """Take in a replica, in a row of its own or the one that is given; `regroup` must follow."""
        replica = Replica.join(settings, self.ledger, self._most, row)
        replica.origin = origin
        if settings.models:
            replica.cards = tuple(_card(model) for model in settings.models)
        # A new list each time: whoever is going through the old one goes on undisturbed.
        self.replicas = [*self.replicas, replica]
        self._by_name[replica.name] = replica
        return replica

    def _order(self, replica: Replica, order: Order) -> None:
        state = replica.state
        before, replica.duty = replica.duty, obey(replica.duty, order)
        if replica.duty is before:
            return
        self.regroup()
        facts = {
            "replica": replica.name,
            "from": before.value,
            "to": replica.duty.value,
            "why": f"told to {order.value}",
            "outstanding": replica.outstanding,
        }
        log.info("replica duty changed", extra=facts)
        self._tell_listeners(replica, state)

    # Pools

    @property
    def all_listed(self) -> bool:
        """Whether every replica has said which models it serves."""
        return all(replica.cards is not None for replica in self.replicas)

    def pool_for(self, model: str | None) -> Pool:
        """The pool that serves `model`; without one, the only pool there is.

        Raises `InvalidRequest` when a model must be named, `ModelNotFound` when nobody serves it,
        and `NoReplica` while some replica has not said yet what it serves.
        """
        if model is not None:
            pool = self.pools.get(model)
            if pool is not None:
                return pool
            if self.all_listed:
                raise ModelNotFound(
                    f"The model {_shown(model)} does not exist here. GET /v1/models lists what is served.",
                    param="model",
                )
            raise NoReplica("Some replicas are still loading; try again shortly.")
        if len(self.pools) > 1:
            raise InvalidRequest(
                "Several models are served here: name one in the field 'model'.", param="model"
            )
        for pool in self.pools.values():
            return pool
        raise NoReplica("No replica has said yet which models it serves; try again shortly.")

    def model_cards(self) -> dict[str, dict[str, Any]]:
        """What `/v1/models` lists: each model once, as the first replica that lists it describes it."""
        cards: dict[str, dict[str, Any]] = {}
        for replica in self.replicas:
            for card in replica.cards or ():
                cards.setdefault(card["id"], card)
        return cards

    # Beliefs

    def tell(self, replica: Replica, event: Event, why: str) -> None:
        """Move a replica through the table, with the reason people will read.

        One that has left the fleet is not moved: somebody was still asking it when it went.
        """
        if replica not in self:
            return
        state = replica.state
        before, replica.health = replica.health, move(replica.health, event)
        replica.why = why
        if replica.health is before:
            return
        self.regroup()
        taken_out = replica.health in {State.UNHEALTHY, State.EJECTED}
        log.log(
            logging.WARNING if taken_out else logging.INFO,
            "replica state changed",
            extra={
                "replica": replica.name,
                "from": before.value,
                "to": replica.health.value,
                "why": why,
            },
        )
        self._tell_listeners(replica, state)

    def wake(self, replica: Replica) -> None:
        """Tell the listeners that `replica` takes requests, if it does."""
        if replica.state is State.READY:
            for listener in self.listeners:
                listener.ready(replica)

    def retell(self, replica: Replica, before: State | None, room: tuple[Any, ...]) -> None:
        """Tell the listeners what another process has found: its state was `before` (None: it is new), its
        `roominess` was `room`."""
        ready = replica.state is State.READY
        for listener in self.listeners:
            if before is None:
                listener.added(replica)
            if ready and before is not State.READY:
                listener.ready(replica)
            elif before is State.READY and not ready:
                listener.lost(replica)
            elif ready and room != replica.roominess:
                listener.widened(replica)

    def _tell_listeners(self, replica: Replica, before: State) -> None:
        """Its state, or what is behind it, has changed."""
        self.wake(replica)
        if before is State.READY and replica.state is not State.READY:
            for listener in self.listeners:
                listener.lost(replica)

    def _widen(self, replica: Replica) -> None:
        if replica.state is State.READY:
            for listener in self.listeners:
                listener.widened(replica)

    def list_models(self, replica: Replica, cards: Sequence[Mapping[str, Any]]) -> None:
        """Take over what a replica lists; pools follow."""
        fresh = tuple({card["id"]: dict(card) for card in cards}.values())
        before, replica.cards = replica.cards, fresh
        names = [card["id"] for card in fresh]
        # vLLM writes its cards anew for every answer, with the time and a random id in them.
        if before is None or names != [card["id"] for card in before]:
            shown = ", ".join(names)[:MOST_SHOWN]
            log.info("replica models changed", extra={"replica": replica.name, "models": shown})
            self.regroup()
            self._widen(replica)

    def regroup(self) -> None:
        """Form the pools anew: after a change of a replica's models, state, limit or trial."""
        pools: dict[str, Pool] = {}
        for replica in self.replicas:
            for card in replica.cards or ():
                name = card["id"]
                pool = pools.get(name)
                if pool is None:
                    # Who waits for a model that was gone goes on when somebody serves it again.
                    pool = pools[name] = self._known.get(name) or Pool(name)
                    pool.replicas, pool.ready, pool.bounded = [], [], False
                pool.replicas.append(replica)
                pool.bounded = pool.bounded or replica.most > 0 or replica.trial
                if replica.state is State.READY:
                    pool.ready.append(replica)
        for name, pool in self.pools.items():
            if name not in pools:
                # Requests may hold it still; they must not be sent to who has left it.
                pool.replicas, pool.ready = [], []
        self.pools = pools
        self._known.update(pools)


def _card(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "owned_by": "replicarouter"}


def _shown(model: str) -> str:
    cut = model if len(model) <= 100 else model[:100] + "…"
    return repr(cut)
