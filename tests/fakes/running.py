"""A running router and what may be asked of it: over its two ports, never through its objects."""

import asyncio
import itertools
import json
import random
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from prometheus_client.parser import text_string_to_metric_families

from replicarouter.app import Router
from replicarouter.settings import load_settings
from tests.fakes.certificates import trusting
from tests.fakes.client import HOST, Answer, Client, request
from tests.fakes.replica import FakeReplica
from tests.fakes.wire import DEADLINE, eventually

STAGES = ("receiving", "queued", "connecting", "sent", "streaming")


class Metrics:
    """One `/metrics` page, read; names are given without the prefix `replicarouter_`."""

    def __init__(self, page: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(page) for sample in family.samples
        ]

    def series(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of `name` that carries `labels`."""
        return [
            (sample.labels, sample.value)
            for sample in self._samples
            if sample.name == f"replicarouter_{name}" and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """The sum over the samples of `name` that carry `labels`; 0 without any."""
        return sum(value for _, value in self.series(name, **labels))


@dataclass(frozen=True, slots=True)
class Ledger:
    """One answer of `/admin/ledger`."""

    document: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    @property
    def stages(self) -> dict[str, int]:
        """The stages that are not empty."""
        return {stage: self.document[stage] for stage in STAGES if self.document[stage]}

    @property
    def finished(self) -> dict[str, int]:
        """How many requests ended in which way; only those that happened."""
        return {outcome: count for outcome, count in self.document["finished"].items() if count}

    def replica(self, replica: FakeReplica) -> dict[str, Any]:
        (row,) = [row for row in self.document["replicas"] if row["name"] == replica.name]
        return dict(row)

    @property
    def settled(self) -> bool:
        """Nothing is in flight: no stage, no replica's count, no busy connection."""
        rows = self.document["replicas"]
        counts = [row[key] for row in rows for key in ("connecting", "sent", "streaming", "outstanding")]
        connector = self.document["connector"]
        return not any(
            (
                *self.stages.values(),
                *counts,
                self.document["accepted"],
                connector["busy"],
                connector["waiting"],
            )
        )


class StartRouter(Protocol):
    """Start the fake replicas and a router in front of all; `ready`: how many to wait for. Others are given
    by their URL or settings.

    `options` are settings by their YAML names.
    """

    async def __call__(
        self, *replicas: FakeReplica | str | dict[str, Any], ready: int | None = None, **options: Any
    ) -> "RunningRouter": ...


class Doors:
    """The two ports of a router, and the clients that were connected to it through this object."""

    def __init__(self, port: int, admin_port: int, token: str | None = None) -> None:
        self.port = port
        self.admin_port = admin_port
        self.tls: ssl.SSLContext | None = None
        self._token = token
        self._clients: list[Client] = []

    async def leave(self) -> None:
        """End all client connections."""
        for client in self._clients:
            await client.closed()

    # Asking as a client

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        client = await Client.connect(self.port, receive_buffer=receive_buffer, tls=self.tls)
        self._clients.append(client)
        return client

    async def begin(self, raw: bytes) -> Client:
        """Send one request on a connection of its own, and leave the answer to the caller."""
        client = await self.connect()
        await client.send(raw)
        return client

    async def ask(self, raw: bytes, deadline: float = DEADLINE) -> Answer:
        """Send one request on a connection of its own; its answer."""
        client = await self.begin(raw)
        answer = await client.answer(deadline)
        client.leave()
        return answer

    async def ask_each(self, requests: Sequence[bytes]) -> list[Answer]:
        """Send the requests at once, a connection each."""
        return await asyncio.gather(*(self.ask(raw) for raw in requests))

    async def get(self, target: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.ask(request("GET", target, headers=headers))

    # Asking as the operator

    async def admin(
        self, target: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask the admin port, with the token if there is one."""
        token = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return await self.admin_send(request(method, target, headers={**token, **dict(headers or {})}))

    async def admin_send(self, raw: bytes) -> Answer:
        """Send these bytes to the admin port."""
        client = await Client.connect(self.admin_port)
        try:
            return await client.ask(raw)
        finally:
            await client.closed()

    async def ledger(self) -> Ledger:
        answer = await self.admin("/admin/ledger")
        assert answer.status == 200, answer.body.raw
        return Ledger(answer.json())

    async def metrics(self) -> Metrics:
        return Metrics((await self.get("/metrics")).body.entity.decode())

    async def stage(self, **wanted: int) -> Ledger:
        """Wait until the stages are exactly these."""
        seen: Ledger | None = None

        async def reached() -> bool:
            nonlocal seen
            seen = await self.ledger()
            return seen.stages == wanted

        try:
            await eventually(reached, f"stages {wanted}")
        except AssertionError as failure:
            raise AssertionError(f"{failure}; stages were {seen and seen.stages}") from None
        assert seen is not None
        return seen

    async def settled(self, deadline: float = DEADLINE) -> Ledger:
        """Wait until nothing is in flight any more."""
        seen: Ledger | None = None

        async def at_rest() -> bool:
            nonlocal seen
            seen = await self.ledger()
            return seen.settled

        try:
            await eventually(at_rest, "the ledger settles", deadline=deadline)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; {seen and seen.document}") from None
        assert seen is not None
        return seen

    async def until_ready(self, count: int) -> None:
        """Wait until `/ready` says so and `count` replicas are."""

        async def ready() -> bool:
            if count and (await self.get("/ready")).status != 200:
                return False
            states = [row["state"] for row in (await self.ledger())["replicas"]]
            return states.count("ready") >= count

        await eventually(ready, f"{count} replicas are ready")


class RunningRouter(Doors):
    """A router that runs on this very loop."""

    def __init__(self, router: Router, token: str | None = None) -> None:
        super().__init__(router.port, router.admin_port, token)
        self._router = router
        self.settings = router.settings.model_dump()
        self.stopped = False

    @classmethod
    async def start(
        cls, replicas: Iterable[FakeReplica | str | dict[str, Any]], folder: Path, **options: Any
    ) -> Self:
        """Start on free ports. `options` are settings by their YAML names; intervals are short by default."""
        document = document_of(replicas, **options)
        config = folder / "router.yaml"
        config.write_text(json.dumps(document))
        router = Router(load_settings(flags={}, environ={}, config=config).settings)
        await router.start()
        running = cls(router, document["admin"].get("token"))
        if cert := document.get("tls", {}).get("cert"):
            running.tls = trusting(Path(cert))
        return running

    async def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            await self._router.stop()


def document_of(replicas: Iterable[FakeReplica | str | dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Settings by their YAML names: a port of its own for the operator, and short intervals."""
    document = {
        "port": 0,
        "replicas": [r.settings if isinstance(r, FakeReplica) else r for r in replicas],
        **options,
    }
    document["health"] = {"interval": 0.1, "timeout": 1.0, **options.get("health", {})}
    document["scrape"] = {"interval": 0.1, **options.get("scrape", {})}
    document["admin"] = {"port": free_port(), **options.get("admin", {})}
    return document


# Below the range from which the operating system takes ports of its own accord: what was free a moment
# ago would otherwise be another test's, as soon as tests run beside each other.
_PORTS = range(10_000, 32_000)
_untried = itertools.cycle(random.SystemRandom().sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """A port that nobody listens on now, and that nobody else is given."""
    for port in _untried:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise AssertionError("ports never end")
