"""In every reading of the metrics the stages add up to the requests received and not ended: looked at after
each step of each task, since a scrape may come between any two."""

import asyncio
import json
from asyncio import gather
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVarTuple

import pytest

from replicarouter.app import Router
from replicarouter.settings import load_settings
from replicarouter.telemetry.families import requests
from replicarouter.telemetry.family import Numbers
from replicarouter.telemetry.sources import Sources
from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held, reply, silence, sized
from tests.fakes.running import Doors, free_port
from tests.fakes.wire import eventually

STAGES = ("requests_receiving", "requests_queued", "requests_outstanding")
BUSY = sized(b'{"error":{"message":"busy"}}', status="503 Service Unavailable", headers="Retry-After: 1\r\n")
ONE = {"max_outstanding_per_replica": 1}
KEYS = {"flood": "key-of-flood", "other": "key-of-other"}
TOKEN = "the-operators-token"


Steps = TypeVarTuple("Steps")


class LookingLoop(asyncio.SelectorEventLoop):
    """Looks after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] = lambda: None

    def call_soon(
        self, callback: Callable[[*Steps], object], *args: *Steps, context: Context | None = None
    ) -> asyncio.Handle:
        def step() -> None:
            callback(*args)
            self.look()

        return super().call_soon(step, context=context)


class Sums:
    """What the page says, added up; `most` of each stage that was seen at a time, `wrong` readings."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.most: dict[str, float] = {}
        self.wrong: list[str] = []

    def look(self) -> None:
        said = {
            family.name: sum(value for _, value in family.rows)
            for family in requests.read(self._sources)
            if isinstance(family, Numbers)
        }
        for stage in STAGES:
            self.most[stage] = max(self.most.get(stage, 0), said[stage])
        stages = sum(said[stage] for stage in STAGES)
        if stages != said["requests_received"] - said["requests"]:
            self.wrong.append(str({name: said[name] for name in (*STAGES, "requests_received", "requests")}))


class Scene(Doors):
    """A router under watch. `outcomes` are how its requests ended."""

    def __init__(self, router: Router, sums: Sums) -> None:
        super().__init__(router.port, router.admin_port, TOKEN)
        self.sums = sums
        self._router = router

    @property
    def outcomes(self) -> dict[str, int]:
        ended: dict[str, int] = {}
        for (_, _, _, outcome), count in self._router.ledger.finished:
            ended[outcome] = ended.get(outcome, 0) + count
        return ended

    async def ended(self, **wanted: int) -> None:
        """Wait until requests have ended in these ways."""
        await eventually(lambda: wanted.items() <= self.outcomes.items(), f"requests end as {wanted}")


@asynccontextmanager
async def a_scene(folder: Path, *replicas: FakeReplica, **options: Any) -> AsyncIterator[Scene]:
    document = {
        "port": 0,
        "replicas": [replica.settings for replica in replicas],
        "health": {"interval": 0.05},
        "scrape": {"interval": 0.05},
        "admin": {"port": free_port(), "token": TOKEN},
        **options,
    }
    config = folder / "router.yaml"
    config.write_text(json.dumps(document))
    for replica in replicas:
        await replica.listen()
    router = Router(load_settings(flags={}, environ={}, config=config).settings)
    await router.start()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LookingLoop)
    scene = Scene(router, Sums(router.sources))
    loop.look = scene.sums.look
    try:
        await scene.until_ready(len(replicas))
        yield scene
        await scene.leave()
        await scene.settled()
    finally:
        loop.look = lambda: None
        await scene.leave()
        await router.stop()
        for replica in replicas:
            await replica.stop()


def bearer(caller: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[caller]}"}


async def shed(folder: Path) -> Sums:
    """A caller who floods the queue has to make room for another."""
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    options = {"admission": {**ONE, "max_queued": 3}, "api_keys": KEYS}
    async with a_scene(folder, replica, **options) as scene:
        for number in range(4):
            await scene.begin(chat(headers=bearer("flood")))
            await scene.stage(sent=1, **({"queued": number} if number else {}))
        await scene.begin(chat(headers=bearer("other")))
        await scene.ended(queue_full=1)
        await scene.begin(chat(headers=bearer("flood")))
        await scene.ended(queue_full=2)
        gate.set()
        await scene.ended(ok=4)
        return scene.sums


async def queue_timeouts_and_departures(folder: Path) -> Sums:
    """Requests leave the queue because their time or their client's patience is over."""
    replica = FakeReplica(silence)
    async with a_scene(folder, replica, admission={**ONE, "queue_timeout": 0.3}) as scene:
        clients = [await scene.begin(chat()) for _ in range(12)]
        await scene.stage(sent=1, queued=11)
        for client in clients[1:6]:
            client.leave("rst")
        await scene.ended(client_gone=5, queue_timeout=6)
        return scene.sums


async def connector_slots(folder: Path) -> Sums:
    """Requests that have a replica wait for connections to it."""
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    options = {"connector": {"limit": 2}, "admission": {"queue_timeout": 0.3}}
    async with a_scene(folder, replica, **options) as scene:
        clients = [await scene.begin(chat()) for _ in range(8)]
        await scene.stage(streaming=2, connecting=6)
        clients[-1].leave()
        await scene.ended(client_gone=1, queue_timeout=5)
        gate.set()
        await scene.ended(ok=2)
        return scene.sums


async def retries(folder: Path) -> Sums:
    """Requests go from a replica that is busy, gone, or breaks off to the next, and some wait in between."""
    busy, gone, good = FakeReplica(reply(BUSY)), FakeReplica(reply(b"", then="rst")), FakeReplica()
    options = {"policy": "round-robin", "admission": ONE, "retry": {"budget": 1.0, "budget_floor": 1000}}
    async with a_scene(folder, busy, gone, good, **options) as scene:
        for refused in (False, True):
            if refused:
                await gone.refuse()
            await gather(*(scene.ask(chat(stream=False)) for _ in range(12)))
        assert sum(scene.outcomes.values()) == 24
        assert scene.outcomes["ok"] >= 12
        return scene.sums


async def uploads(folder: Path) -> Sums:
    """Bodies come slowly, stop, are too long, or never come whole; some heads are no requests."""
    replica = FakeReplica()
    async with a_scene(folder, replica, max_body_bytes=2000, timeouts={"client_body": 0.3}) as scene:
        whole = chat()
        slow, cut, gap = [await scene.begin(whole[:-20]) for _ in range(3)]
        await scene.stage(receiving=3)
        await slow.send(whole[-20:])
        cut.leave("rst")
        assert (await slow.answer()).status == 200
        assert (await gap.answer()).status == 408
        assert (await scene.ask(chat(user="x" * 4000))).status == 413
        chunked = request("POST", "/v1/chat/completions", b"{", chunked=True)
        assert (await scene.ask(chunked)).status == 400
        assert (await scene.ask(b"GET / HTTP/9\r\n\r\n")).status == 400
        await scene.ended(ok=1, client_gone=1, request_timeout=1, body_too_large=1)
        return scene.sums


async def large_bodies(folder: Path) -> Sums:
    """A long prompt is read in steps; what nobody need read is passed on while it comes."""
    replica = FakeReplica()
    async with a_scene(folder, replica, timeouts={"total": 0.5}) as scene:
        assert (await scene.ask(chat(user="x" * 3_000_000))).status == 200
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        whole = request("POST", "/v1/audio/transcriptions", b"--b\r\n" + b"x" * 200_000, form)
        slow, never = [await scene.begin(whole[:-10]) for _ in range(2)]
        await scene.stage(sent=2)
        await slow.send(whole[-10:])
        assert (await slow.answer()).status == 200
        assert (await never.answer()).status == 504
        await scene.ended(ok=2, total_timeout=1)
        return scene.sums


async def cut_streams(folder: Path) -> Sums:
    """Streams end because their client or their replica goes, or the operator ends them."""
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    async with a_scene(folder, replica) as scene:
        clients = [await scene.begin(chat(headers={"X-Request-Id": f"r{n}"})) for n in range(6)]
        await scene.stage(streaming=6)
        clients[0].leave("rst")
        clients[1].leave("fin")
        await scene.ended(client_gone=2)
        await scene.admin("/admin/requests/r2/cancel", "POST")
        await scene.stage(streaming=3)
        replica.reset_all()
        await scene.ended(replica_disconnected=3)
        return scene.sums


async def stored_responses(folder: Path) -> Sums:
    """The replica that alone can go on leaves while a request waits for it."""
    gate = asyncio.Event()
    owner = FakeReplica(reply(sized(b'{"id":"resp_1","object":"response"}')), name="owner")
    async with a_scene(folder, owner, FakeReplica(silence, name="spare"), admission=ONE) as scene:
        await scene.admin("/admin/replicas/spare/drain", "POST")
        first = request("POST", "/v1/responses", b'{"model":"m1","input":"a"}')
        assert (await scene.ask(first)).status == 200
        owner.script = held(b"", gate, OK)
        holder = await scene.begin(chat())
        await scene.stage(sent=1)
        follow_up = b'{"model":"m1","input":"b","previous_response_id":"resp_1"}'
        waiting = await scene.begin(request("POST", "/v1/responses", follow_up))
        await scene.stage(sent=1, queued=1)
        await scene.admin("/admin/replicas/owner", "DELETE")
        gate.set()
        assert (await holder.answer()).status == 200
        assert (await waiting.answer()).status == 404
        return scene.sums


async def lost_model(folder: Path) -> Sums:
    """Nobody lists a model any more for which requests wait; later somebody does again."""
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    async with a_scene(folder, replica, admission=ONE) as scene:
        clients = [await scene.begin(chat(stream=False)) for _ in range(3)]
        await scene.stage(sent=1, queued=2)
        replica.probes.models = ["another"]

        async def lost() -> bool:
            page = await scene.metrics()
            return page.series("policy_info", model="another") != []

        await eventually(lost, "the model is gone")
        page = await scene.metrics()
        assert page.value("requests_queued") == 2
        replica.probes.models = ["m1"]
        gate.set()
        assert [(await client.answer()).status for client in clients] == [200] * 3
        return scene.sums


SCENES: list[Callable[[Path], Awaitable[Sums]]] = [
    *(shed, queue_timeouts_and_departures, connector_slots, retries),
    *(uploads, large_bodies, cut_streams, stored_responses, lost_model),
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_stages_add_up_between_any_two_steps(
    scene: Callable[[Path], Awaitable[Sums]], tmp_path: Path
) -> None:
    async def play() -> Sums:
        return await scene(tmp_path)

    with asyncio.Runner(loop_factory=LookingLoop) as runner:
        sums = runner.run(play())

    assert sums.wrong == []
    assert any(sums.most.values())
