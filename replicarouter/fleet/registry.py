"""The fleet: all replicas, and the pools (model × role) they form. Membership is kept, not recomputed."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replicarouter.errors import InvalidRequest, ModelNotFound, NoReplica
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event, State, move
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Pool:
    """The replicas of one model in one role. `ready` is a subset of `replicas`, in the same order;
    `bounded` says that some of them may be full."""

    model: str
    role: str = "both"
    replicas: list[Replica] = field(default_factory=list)
    ready: list[Replica] = field(default_factory=list)
    bounded: bool = False


class Fleet:
    """All replicas the router knows, by name, and their pools by model."""

    def __init__(self, replicas: Sequence[ReplicaSettings], ledger: Ledger, *, most: int = 0) -> None:
        self.ledger = ledger
        self.replicas = [Replica.join(settings, ledger, most) for settings in replicas]
        self.on_ready: Callable[[Replica], None] | None = None
        self.pools: dict[str, Pool] = {}
        for replica in self.replicas:
            configured = replica.settings.models
            if configured:
                replica.cards = tuple(_card(model) for model in configured)
        self._regroup()

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.replicas)

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

    def tell(self, replica: Replica, event: Event, why: str) -> None:
        """Move a replica through the table, with the reason people will read."""
        before, replica.state = replica.state, move(replica.state, event)
        replica.why = why
        if replica.state is before:
            return
        self._regroup()
        level = logging.WARNING if replica.state is State.UNHEALTHY else logging.INFO
        log.log(
            level,
            "replica state changed",
            extra={
                "replica": replica.name,
                "from": before.value,
                "to": replica.state.value,
                "why": why,
            },
        )
        if replica.state is State.READY and self.on_ready is not None:
            self.on_ready(replica)

    def list_models(self, replica: Replica, cards: Sequence[Mapping[str, Any]]) -> None:
        """Take over what a replica lists; pools follow."""
        fresh = tuple({card["id"]: dict(card) for card in cards}.values())
        if fresh != replica.cards:
            replica.cards = fresh
            self._regroup()

    def _regroup(self) -> None:
        pools: dict[str, Pool] = {}
        for replica in self.replicas:
            for card in replica.cards or ():
                name = card["id"]
                pool = pools.get(name)
                if pool is None:
                    pool = pools[name] = self.pools.get(name) or Pool(name)
                    pool.replicas, pool.ready, pool.bounded = [], [], False
                pool.replicas.append(replica)
                pool.bounded = pool.bounded or replica.most > 0
                if replica.state is State.READY:
                    pool.ready.append(replica)
        self.pools = pools


def _card(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "owned_by": "replicarouter"}


def _shown(model: str) -> str:
    cut = model if len(model) <= 100 else model[:100] + "…"
    return repr(cut)
