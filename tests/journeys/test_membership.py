"""Replicas that leave and join while they work: nothing that runs is cut, and nothing is lost."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self

import pytest
import pytest_asyncio

from replicarouter.cli import main
from tests.fakes.client import HOST, Answer, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SHORT_STREAM, SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually

QUICK = ("--health-interval", "0.1", "--scrape-interval", "0.1")
SHORT = SHORT_STREAM.partition(b"\r\n\r\n")[2]


class Load:
    """Clients that send one short request after another while the block runs."""

    def __init__(self, router: Served, clients: int = 4) -> None:
        self.answers: list[Answer] = []
        self._router = router
        self._count = clients
        self._clients: list[asyncio.Future[None]] = []
        self._over = False

    async def __aenter__(self) -> Self:
        self._clients = [asyncio.ensure_future(self._client()) for _ in range(self._count)]
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._over = True
        if failed is not None:
            for client in self._clients:
                client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=failed is not None)
        if failed is None:
            assert self.failed == []

    async def _client(self) -> None:
        while not self._over:
            self.answers.append(await self._router.ask(chat()))

    async def more(self, count: int = 20) -> None:
        """Wait until so many more have been answered."""
        enough = len(self.answers) + count
        await eventually(lambda: len(self.answers) >= enough, f"{count} more answers", deadline=15)

    @property
    def failed(self) -> list[bytes]:
        """The answers that are not as they should be."""
        return [
            one.head.raw + one.body.raw[:500]
            for one in self.answers
            if one.status != 200 or one.ended != "clean" or one.body.raw != SHORT
        ]


def patient(gate: asyncio.Event) -> Callable[[Received, Connection], Awaitable[None]]:
    """Holds requests of the user `held` in mid-stream until the gate opens; answers others at once."""

    async def script(received: Received, connection: Connection) -> None:
        if b'"held"' not in received.body:
            await connection.send(SHORT_STREAM)
            return
        await connection.send(SSE_HEAD + event("1"))
        await gate.wait()
        await connection.send(event("2") + LAST_CHUNK)

    return script


LONG = event("1") + event("2") + LAST_CHUNK


async def rows(router: Served) -> dict[str, str]:
    """The states of the replicas by name."""
    listed = (await router.admin("/admin/replicas")).json()["replicas"]
    return {row["name"]: row["state"] for row in listed}


async def order(router: Served, method: str, path: str, document: object = None) -> Answer:
    body = None if document is None else json.dumps(document).encode()
    return await router.admin_send(request(method, path, body))


def listing(file: Path, *replicas: FakeReplica) -> None:
    """Write the settings file, as JSON, which is YAML too."""
    document = {"replicas": [replica.settings for replica in replicas], "health": {"slow_start": 0}}
    file.write_text(json.dumps(document))


Start = Callable[..., Awaitable[Served]]


@pytest_asyncio.fixture
async def start(serve: Serve, file: Path) -> AsyncIterator[Start]:
    """Start the command in front of replicas that its file lists; `spare` ones only listen."""
    fakes: list[FakeReplica] = []

    async def one(
        *replicas: FakeReplica, flags: Sequence[str] = (), spare: Sequence[FakeReplica] = ()
    ) -> Served:
        for replica in (*replicas, *spare):
            fakes.append(replica)
            await replica.listen()
        listing(file, *replicas)
        router = await serve(flags=("--config", str(file), *QUICK, *flags))
        await router.until_ready(len(replicas))
        return router

    yield one
    for replica in fakes:
        await replica.stop()
    assert [fault for replica in fakes for fault in replica.faults] == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "router.yaml"


async def in_state(router: Served, replica: FakeReplica, state: str | None) -> bool:
    """Whether a replica is in this state; None: not there."""
    return (await rows(router)).get(replica.name) == state


async def until(router: Served, replica: FakeReplica, state: str | None) -> None:
    what = f"{replica.name} is {state or 'gone'}"
    await eventually(lambda: in_state(router, replica, state), what, deadline=10)


@pytest.mark.parametrize("how", ["the admin API", "the file"])
async def test_a_replica_leaves_while_it_works(start: Start, file: Path, how: str) -> None:
    """H64"""
    gate = asyncio.Event()
    leaving, staying = FakeReplica(patient(gate)), FakeReplica(patient(gate))
    router = await start(leaving, staying, flags=["--watch"] if how == "the file" else [])
    streams = [await router.begin(chat(user="held")) for _ in range(20)]
    await router.stage(streaming=20)
    assert len(leaving.requests) == len(staying.requests) == 10
    async with Load(router) as load:
        await load.more()
        if how == "the file":
            listing(file, staying)
            await until(router, leaving, "draining")
        else:
            answer = await order(router, "DELETE", f"/admin/replicas/{leaving.name}")
            assert (answer.status, answer.json()["state"]) == (202, "draining")
        told = time.monotonic()
        await load.more(50)
        assert [one for one in leaving.requests if one.at > told] == []

        gate.set()
        for stream in streams:
            answer = await stream.answer()
            assert (answer.ended, answer.body.raw) == ("clean", LONG)
        await until(router, leaving, None)
    metrics = await router.metrics()
    assert metrics.series("requests_outstanding", replica=leaving.name) == []
    assert metrics.series("replica_state", replica=leaving.name) == []
    used = leaving.used_connections
    await eventually(lambda: all(one.wire.ending for one in used), "no request can take them", deadline=2)
    probed, others = len(leaving.probed), len(staying.probed)
    await eventually(lambda: len(staying.probed) >= others + 10, "the other is probed")
    assert len(leaving.probed) == probed


async def test_a_replica_that_goes_and_comes_ten_times_costs_no_request(start: Start) -> None:
    """H64"""
    moving, staying = FakeReplica(patient(asyncio.Event())), FakeReplica(patient(asyncio.Event()))
    router = await start(moving, staying)
    async with Load(router) as load:
        for _ in range(10):
            removed = await order(router, "DELETE", f"/admin/replicas/{moving.name}")
            assert removed.status in {202, 204}
            await until(router, moving, None)
            before = len(moving.requests)
            await load.more(5)
            assert len(moving.requests) == before
            added = await order(router, "POST", "/admin/replicas", moving.settings)
            assert (added.status, added.json()["state"]) == (201, "loading")
            await eventually(lambda before=before: len(moving.requests) > before, "it works")  # type: ignore[misc]
    await router.settled()


async def test_a_replica_that_leaves_can_be_kept_after_all(start: Start) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(patient(gate))
    router = await start(replica)
    stream = await router.begin(chat(user="held"))
    await router.stage(streaming=1)
    path = f"/admin/replicas/{replica.name}"
    assert (await order(router, "DELETE", path)).status == 202
    (await order(router, "POST", "/admin/replicas", replica.settings)).refused(409, "replica_exists")
    (await router.ask(chat())).refused(503, "no_replica")
    assert (await order(router, "POST", f"{path}/undrain")).json()["state"] == "ready"
    assert (await router.ask(chat())).status == 200
    gate.set()
    assert (await stream.answer()).body.raw == LONG
    assert await rows(router) == {replica.name: "ready"}


async def test_a_newcomer_gets_requests_when_it_is_ready_and_no_sooner(start: Start) -> None:
    """H64"""
    first, newcomer = FakeReplica(patient(asyncio.Event())), FakeReplica(patient(asyncio.Event()))
    newcomer.probes.health = 503
    router = await start(first, spare=[newcomer])
    async with Load(router) as load:
        assert (await order(router, "POST", "/admin/replicas", newcomer.settings)).status == 201
        await eventually(lambda: len(newcomer.probed) > 3, "it is probed")
        await load.more()
        assert newcomer.requests == []
        newcomer.probes.health = 200
        await eventually(lambda: len(newcomer.requests) >= 10, "it works")


async def test_eight_replicas_restart_one_after_the_other_and_nobody_notices(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = [FakeReplica(patient(asyncio.Event())) for _ in range(8)]
    router = await start(*replicas)

    async def command(action: str, *words: str) -> None:
        admin = f"http://{HOST}:{router.admin_port}"
        status = await asyncio.to_thread(main, ["replicas", action, *words, "--admin", admin])
        assert status == 0, capsys.readouterr().err

    async def restart(replica: FakeReplica, load: Load) -> None:
        await command("drain", replica.name, "--wait", "--timeout", "5")
        before = len(replica.requests)
        replica.reset_all()
        await replica.refuse()
        await load.more(8)
        await replica.listen()
        await load.more(8)
        assert len(replica.requests) == before
        await command("undrain", replica.name)
        await eventually(lambda: len(replica.requests) > before, f"{replica.name} works again")

    async with Load(router, clients=8) as load:
        for replica in replicas:
            await restart(replica, load)


async def test_a_model_is_unknown_when_its_last_replica_has_left(start: Start) -> None:
    last = FakeReplica(models=["m2"])
    router = await start(FakeReplica(), last)
    assert (await router.ask(chat(model="m2"))).status == 200
    assert (await order(router, "DELETE", f"/admin/replicas/{last.name}")).status == 204
    (await router.ask(chat(model="m2"))).refused(404, "model_not_found")
