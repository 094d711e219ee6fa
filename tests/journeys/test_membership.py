"""Replicas that leave and join while they work: nothing that runs is cut, and nothing is lost."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from replicarouter.cli import main
from tests.fakes.client import Answer, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SHORT_STREAM, SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually

QUICK = ("--health-interval", "0.1", "--scrape-interval", "0.1")
SHORT = SHORT_STREAM.partition(b"\r\n\r\n")[2]


class Load:
    """Clients that send one short request after another until they are told to stop."""

    def __init__(self, router: Served, clients: int = 4) -> None:
        self.answers: list[Answer] = []
        self._router = router
        self._over = False
        self._clients = [asyncio.ensure_future(self._client()) for _ in range(clients)]

    async def _client(self) -> None:
        while not self._over:
            self.answers.append(await self._router.ask(chat()))

    async def more(self, count: int = 20) -> None:
        """Wait until so many more have been answered."""
        enough = len(self.answers) + count
        await eventually(lambda: len(self.answers) >= enough, f"{count} more answers")

    async def stop(self) -> None:
        self._over = True
        await asyncio.gather(*self._clients)

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


async def start(serve: Serve, file: Path, replicas: Sequence[FakeReplica], *flags: str) -> Served:
    """The command in front of replicas that its file lists."""
    for replica in replicas:
        await replica.listen()
    listing(file, *replicas)
    router = await serve(flags=("--config", str(file), *QUICK, *flags))
    await router.until_ready(len(replicas))
    return router


@pytest.mark.parametrize("how", ["the admin API", "the file"])
async def test_a_replica_leaves_while_it_works(serve: Serve, tmp_path: Path, how: str) -> None:
    """H64"""
    gate = asyncio.Event()
    leaving, staying = FakeReplica(patient(gate)), FakeReplica(patient(gate))
    file = tmp_path / "router.yaml"
    router = await start(serve, file, (leaving, staying), *(["--watch"] if how == "the file" else []))
    streams = [await router.begin(chat(user="held")) for _ in range(20)]
    await router.stage(streaming=20)
    assert len(leaving.requests) == len(staying.requests) == 10
    load = Load(router)
    await load.more()

    if how == "the file":
        listing(file, staying)
        await eventually(lambda: leaving_state(router, leaving, "draining"), "the change is seen")
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
    await eventually(lambda: gone(router, leaving), "it has left with its last stream")
    assert (await router.metrics()).series("requests_outstanding", replica=leaving.name) == []
    assert (await router.metrics()).series("replica_state", replica=leaving.name) == []
    await eventually(
        lambda: all(connection.wire.ending for connection in leaving.connections), "nothing is connected"
    )
    probed, others = len(leaving.probed), len(staying.probed)
    await eventually(lambda: len(staying.probed) >= others + 10, "the other is probed")
    assert len(leaving.probed) == probed
    await load.stop()
    assert load.failed == []
    await leaving.stop()
    await staying.stop()


async def leaving_state(router: Served, replica: FakeReplica, state: str) -> bool:
    return (await rows(router)).get(replica.name) == state


async def gone(router: Served, replica: FakeReplica) -> bool:
    return replica.name not in await rows(router)


async def test_a_replica_that_goes_and_comes_ten_times_costs_no_request(serve: Serve, tmp_path: Path) -> None:
    """H64"""
    moving, staying = FakeReplica(patient(asyncio.Event())), FakeReplica(patient(asyncio.Event()))
    router = await start(serve, tmp_path / "router.yaml", (moving, staying))
    load = Load(router)
    for _ in range(10):
        await load.more(10)
        removed = await order(router, "DELETE", f"/admin/replicas/{moving.name}")
        assert removed.status in {202, 204}
        await eventually(lambda: gone(router, moving), "it has left")
        before = len(moving.requests)
        await load.more(5)
        assert len(moving.requests) == before
        added = await order(router, "POST", "/admin/replicas", moving.settings)
        assert (added.status, added.json()["state"]) == (201, "loading")
        await eventually(lambda before=before: len(moving.requests) > before, "it works again")  # type: ignore[misc]
    await load.stop()
    assert load.failed == []
    await router.settled()
    await moving.stop()
    await staying.stop()


async def test_a_replica_that_leaves_can_be_kept_after_all(serve: Serve, tmp_path: Path) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(patient(gate))
    router = await start(serve, tmp_path / "router.yaml", (replica,))
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
    await replica.stop()


async def test_a_newcomer_gets_requests_when_it_is_ready_and_no_sooner(serve: Serve, tmp_path: Path) -> None:
    """H64"""
    first, newcomer = FakeReplica(patient(asyncio.Event())), FakeReplica(patient(asyncio.Event()))
    await newcomer.listen()
    newcomer.probes.health = 503
    router = await start(serve, tmp_path / "router.yaml", (first,))
    load = Load(router)
    await load.more()
    assert (await order(router, "POST", "/admin/replicas", newcomer.settings)).status == 201
    probed = len(newcomer.probed)
    await eventually(lambda: len(newcomer.probed) > probed + 2, "it is probed")
    await load.more()
    assert newcomer.requests == []
    newcomer.probes.health = 200
    await eventually(lambda: len(newcomer.requests) >= 10, "it works")
    await load.stop()
    assert load.failed == []
    await first.stop()
    await newcomer.stop()


async def test_eight_replicas_restart_one_after_the_other_and_nobody_notices(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replicas = [FakeReplica(patient(asyncio.Event())) for _ in range(8)]
    router = await start(serve, tmp_path / "router.yaml", replicas)
    load = Load(router, clients=8)

    async def command(action: str, *words: str) -> None:
        admin = f"http://127.0.0.1:{router.admin_port}"
        status = await asyncio.to_thread(main, ["replicas", action, *words, "--admin", admin])
        assert status == 0, capsys.readouterr().err

    for replica in replicas:
        await load.more(8)
        await command("drain", replica.name, "--wait", "--timeout", "5")
        before = len(replica.requests)
        replica.reset_all()
        await replica.refuse()
        await replica.listen()
        await load.more(8)
        assert len(replica.requests) == before
        await command("undrain", replica.name)
        await eventually(lambda: ready(router, replica), f"{replica.name} is back")  # noqa: B023
        await eventually(lambda: len(replica.requests) > before, f"{replica.name} works")  # noqa: B023
    await load.stop()
    assert load.failed == []
    for replica in replicas:
        await replica.stop()


async def ready(router: Served, replica: FakeReplica) -> bool:
    return (await rows(router))[replica.name] == "ready"


async def test_an_unknown_model_is_unknown_when_its_last_replica_has_left(
    serve: Serve, tmp_path: Path
) -> None:
    first, last = FakeReplica(), FakeReplica(models=["m2"])
    router = await start(serve, tmp_path / "router.yaml", (first, last))
    assert (await router.ask(chat(model="m2"))).body.raw == OK.partition(b"\r\n\r\n")[2]
    assert (await order(router, "DELETE", f"/admin/replicas/{last.name}")).status == 204
    (await router.ask(chat(model="m2"))).refused(404, "model_not_found")
    await first.stop()
    await last.stop()
