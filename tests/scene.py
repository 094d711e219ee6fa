"""Small values of the router's own kinds, for tests of single rooms: replicas, fleets, exchanges."""

from collections.abc import Callable, Sequence
from typing import Any

from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.request import InferenceRequest
from replicarouter.settings import ReplicaSettings

CHAT = "/v1/chat/completions"


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class HandTimer:
    """Calls nothing before it is told to: what is `due`, and after how many seconds."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((seconds, call))

    def fire(self) -> None:
        due, self.due = self.due, []
        for _, call in due:
            call()


def replica_settings(name: str = "a", **options: Any) -> ReplicaSettings:
    """`options` by their YAML names; the URL leads nowhere."""
    return ReplicaSettings.model_validate({"url": f"http://{name}.invalid:8000", "name": name, **options})


def a_replica(name: str = "a", *, most: int = 0, ledger: Ledger | None = None, **options: Any) -> Replica:
    """A replica that is not part of a fleet."""
    return Replica.join(replica_settings(name, **options), ledger or Ledger(), most)


def a_fleet(
    *replicas: str | ReplicaSettings, models: Sequence[str] = ("m1",), ready: bool = True, most: int = 0
) -> Fleet:
    """A fleet whose replicas all serve `models` (unless their settings say otherwise), ready or not."""
    settings = [one if isinstance(one, ReplicaSettings) else replica_settings(one) for one in replicas]
    fleet = Fleet(settings, Ledger(), most=most)
    for replica in fleet:
        if models and replica.settings.models is None:
            fleet.list_models(replica, [{"id": model} for model in models])
        if ready:
            fleet.tell(replica, Event.PASSED, "said so")
    return fleet


def named(fleet: Fleet, name: str) -> Replica:
    """The replica of this name."""
    (found,) = [replica for replica in fleet if replica.name == name]
    return found


def an_exchange(**fields: Any) -> Exchange:
    """A chat request whose head was read at 1000."""
    exchange = Exchange(method="POST", path=CHAT, endpoint=CHAT, accepted_at=1000.0, client_id="c")
    exchange.upstream_id = "u"
    for name, value in fields.items():
        assert hasattr(exchange, name), name
        setattr(exchange, name, value)
    return exchange


def a_request(model: str | None = "m1") -> InferenceRequest:
    """A chat request as policies see it."""
    endpoint = Endpoints().find(CHAT)
    assert endpoint is not None
    return InferenceRequest(endpoint, model)
