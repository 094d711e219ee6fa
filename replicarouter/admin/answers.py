"""What the router answers by itself: models, health, readiness, version, metrics."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from replicarouter.errors import Draining, ModelNotFound, NoReplica, RouterError
from replicarouter.fleet.registry import Fleet
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.telemetry.exposition import CONTENT_TYPE

MODELS = "/v1/models"


class OwnAnswers:
    """Answers the router's own paths. `metrics` writes that page, `draining` says whether it is shutting
    down, `exposing` whether callers may learn the names of replicas; `aliases` are other names of models."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: Callable[[], bytes],
        *,
        version: str,
        draining: Callable[[], bool],
        exposing: Callable[[], bool] = lambda: True,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._aliases = {} if aliases is None else aliases
        self._exposing = exposing
        self._fleet = fleet
        self._page = metrics
        self._draining = draining
        self._version = orjson.dumps({"version": version, "name": "replicarouter"})
        self._fixed: dict[str, Callable[[str], LocalAnswer]] = {
            "/health": self._health,
            "/ready": self._ready,
            "/version": self._say_version,
            "/metrics": self._metrics,
            MODELS: self._models,
        }

    @property
    def draining(self) -> bool:
        """Whether the router is shutting down."""
        return self._draining()

    def find(self, path: str, query: str) -> LocalAnswer | None:
        """The answer to GET `path`; None when the path is not one of ours."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed(query)
        if path.startswith(f"{MODELS}/"):
            return self._model(unquote(path[len(MODELS) + 1 :]))
        return None

    def _health(self, _query: str) -> LocalAnswer:
        return LocalAnswer(200, b'{"status":"ok"}')

    def _ready(self, query: str) -> LocalAnswer:
        if self._draining():
            return error_answer(Draining("The router is shutting down."))
        named = parse_qs(query).get("model")
        try:
            ready = self._ready_models(named[0] if named else None)
        except RouterError as error:
            return error_answer(error)
        return LocalAnswer(200, orjson.dumps({"status": "ready", "models": ready}))

    def _ready_models(self, named: str | None) -> list[str]:
        if named is not None:
            if not self._fleet.pool_for(self._aliases.get(named, named)).ready:
                raise NoReplica("No replica of this model is ready.")
            return [named]
        ready = [pool.model for pool in self._fleet.pools.values() if pool.ready]
        if not ready:
            raise NoReplica("No replica is ready. " + "; ".join(self._states()))
        return ready

    def _states(self) -> Iterator[str]:
        """Why nobody is ready; a name holds the address of its replica, unless another is given."""
        for number, replica in enumerate(self._fleet, 1):
            name = replica.name if self._exposing() else f"replica {number}"
            yield f"{name}: {replica.state.value} ({replica.reason})"

    def _say_version(self, _query: str) -> LocalAnswer:
        return LocalAnswer(200, self._version)

    def _metrics(self, _query: str) -> LocalAnswer:
        return LocalAnswer(200, self._page(), CONTENT_TYPE)

    def _models(self, _query: str) -> LocalAnswer:
        cards = list(self._cards().values())
        return LocalAnswer(200, orjson.dumps({"object": "list", "data": cards}))

    def _cards(self) -> dict[str, dict[str, Any]]:
        """What can be asked for: the models, and each alias as the model that it stands for."""
        cards = self._fleet.model_cards()
        others = {
            alias: {**cards[model], "id": alias, "root": model, "parent": model}
            for alias, model in self._aliases.items()
            if model in cards
        }
        return {**cards, **others}

    def _model(self, model: str) -> LocalAnswer:
        card = self._cards().get(model)
        if card is not None:
            return LocalAnswer(200, orjson.dumps(card))
        try:
            self._fleet.pool_for(self._aliases.get(model, model))
        except RouterError as error:
            return error_answer(error)
        return error_answer(ModelNotFound("This model does not exist here.", param="model"))
