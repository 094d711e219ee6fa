"""Counts: they settle after every way of ending, nothing but an ending changes them, and load is even."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import Answer, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    Script,
    event,
    held,
    reply,
    silence,
    sized,
    stall,
)
from tests.fakes.running import Ledger, RunningRouter, StartRouter
from tests.fakes.wire import eventually

GROUP = 20


async def reset(_: Received, connection: Connection) -> None:
    connection.wire.reset()


async def begin_stream_and_reset(_: Received, connection: Connection) -> None:
    await connection.send(SSE_HEAD + event("1"))
    connection.wire.reset()


ANSWERED: dict[str, tuple[Script, bytes, set[str]]] = {
    "ok": (reply(OK), chat(), {"ok"}),
    "stream": (reply(SHORT_STREAM), chat(), {"ok"}),
    "engine-4xx": (reply(sized(b"{}", status="400 Bad")), chat(), {"upstream_error"}),
    "engine-429": (reply(sized(b"{}", status="429 Busy")), chat(), {"upstream_error"}),
    "engine-5xx": (reply(sized(b"{}", status="500 Broken")), chat(), {"upstream_error"}),
    "reset": (reset, chat(), {"replica_disconnected"}),
    "closed": (reply(b"", then="fin"), chat(), {"replica_disconnected"}),
    "reset-in-stream": (begin_stream_and_reset, chat(), {"replica_disconnected"}),
    "bad-head": (reply(b"garbage\r\n\r\n"), chat(), {"bad_replica_response"}),
    "bad-chunk": (reply(SSE_HEAD + b"zz\r\n"), chat(), {"bad_replica_response"}),
    "head-timeout": (silence, chat(), {"response_head_timeout"}),
    "idle-timeout": (stall(SSE_HEAD + event("1")), chat(), {"idle_timeout"}),
    "bad-json": (reply(OK), request("POST", "/v1/chat/completions", b"{bad"), {"invalid_request"}),
    "unknown-model": (reply(OK), chat(model="nope"), {"model_not_found"}),
    "unknown-path": (reply(OK), request("POST", "/nope", b"{}"), {"unknown_path"}),
    "wrong-method": (reply(OK), request("GET", "/v1/completions"), {"method_not_allowed"}),
    "too-large": (reply(OK), chat(pad="x" * 20_000), {"body_too_large"}),
}


async def watched(router: RunningRouter, work: "asyncio.Future[list[Answer]]") -> None:
    """Assert while `work` runs that no count is ever negative or more than there are requests."""
    while not work.done():
        check(await router.ledger())
        await asyncio.sleep(0.01)


def check(ledger: Ledger) -> None:
    assert all(0 <= count <= GROUP for count in ledger.stages.values()), ledger.document
    for row in ledger["replicas"]:
        counts = [row["connecting"], row["sent"], row["streaming"]]
        assert min(counts) >= 0, row
        assert row["outstanding"] == sum(counts)


@pytest.mark.parametrize(("script", "raw", "outcomes"), ANSWERED.values(), ids=ANSWERED)
async def test_counts_settle_after_every_answer(
    start_router: StartRouter, script: Script, raw: bytes, outcomes: set[str]
) -> None:
    replicas = [FakeReplica(script) for _ in range(3)]
    timeouts = {name.removesuffix("_timeout"): 0.5 for name in outcomes if name.endswith("_timeout")}
    router = await start_router(*replicas, max_body_bytes=10_000, timeouts=timeouts)
    work = asyncio.ensure_future(router.ask_each([raw] * GROUP))
    await watched(router, work)
    assert len(await work) == GROUP
    ledger = await router.settled()
    check(ledger)
    assert set(ledger.finished) == outcomes
    assert sum(ledger.finished.values()) == ledger["received_total"] == GROUP
    metrics = await router.metrics()
    assert metrics.value("requests_outstanding") == 0
    assert metrics.value("requests_receiving") == 0
    assert metrics.value("requests_queued") == 0
    for replica in replicas:
        replica.script = reply(OK)
    for _ in range(GROUP):
        assert (await router.ask(chat())).status == 200


LEFT: dict[str, tuple[Script, bytes, dict[str, int]]] = {
    "before-the-head": (silence, chat(), {"sent": GROUP}),
    "in-the-stream": (stall(SSE_HEAD + event("1")), chat(), {"streaming": GROUP}),
    "in-the-upload": (reply(OK), chat(pad="x" * 100)[:-50], {"receiving": GROUP}),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("script", "raw", "stages"), LEFT.values(), ids=LEFT)
async def test_counts_settle_after_every_departure(
    start_router: StartRouter, script: Script, raw: bytes, stages: dict[str, int], policy: str
) -> None:
    replicas = [FakeReplica(script) for _ in range(4)]
    router = await start_router(*replicas, policy=policy)
    clients = [await router.begin(raw) for _ in range(GROUP)]
    check(await router.stage(**stages))
    for number, client in enumerate(clients):
        client.leave("fin" if number % 2 else "rst")
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": GROUP}
    if policy in {"least-outstanding", "round-robin"} and "receiving" not in stages:
        assert [len(replica.requests) for replica in replicas] == [GROUP // 4] * 4


async def test_counts_settle_when_connections_are_refused(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(3)]
    router = await start_router(*replicas, health={"interval": 1000})
    for replica in replicas:
        await replica.refuse()
    answers = await router.ask_each([chat()] * GROUP)
    assert {answer.status for answer in answers} <= {502, 503}
    ledger = await router.settled()
    assert set(ledger.finished) <= {"connect_failed", "no_replica"}
    assert sum(ledger.finished.values()) == GROUP


async def test_replica_that_restarts_attracts_no_more_than_its_share(start_router: StartRouter) -> None:
    replicas = [FakeReplica(begin_stream_and_reset) for _ in range(3)]
    options: dict[str, Any] = {"health": {"slow_start": 0}, "eject": {"consecutive_failures": 1000}}
    router = await start_router(*replicas, **options)
    await router.ask_each([chat()] * 60)
    for replica in replicas:
        replica.script = reply(OK)
        replica.requests.clear()
    await replicas[2].refuse()

    async def down() -> bool:
        return str((await router.ledger()).replica(replicas[2])["state"]) == "unhealthy"

    await eventually(down, "the stopped replica is unhealthy")
    await replicas[2].listen()
    await router.until_ready(3)
    for _ in range(10):
        await router.ask_each([chat()] * 30)
    counts = [len(replica.requests) for replica in replicas]
    assert sum(counts) == 300
    assert all(75 <= count <= 125 for count in counts), counts


async def test_replica_that_was_removed_and_added_begins_at_zero(start_router: StartRouter) -> None:
    """H66: after every kind of departure a newcomer's honest zero attracts no more than its share."""
    replicas = [FakeReplica(stall(SSE_HEAD + event("1"))) for _ in range(3)]
    router = await start_router(
        *replicas, health={"slow_start": 0}, admission={"max_outstanding_per_replica": 10}
    )
    clients = [await router.begin(chat()) for _ in range(50)]
    await router.stage(streaming=30, queued=20)
    for number, client in enumerate(reversed(clients)):
        client.leave("fin" if number % 2 else "rst")
    assert (await router.settled()).finished == {"client_gone": 50}
    assert (await router.metrics()).value("requests_queued") == 0
    for replica in replicas:
        replica.script = reply(OK)
        replica.requests.clear()
    leaving = replicas[2]
    assert (await router.admin(f"/admin/replicas/{leaving.name}", "DELETE")).status == 204
    operator = await Client.connect(router.admin_port)
    body = json.dumps(leaving.settings).encode()
    assert (await operator.ask(request("POST", "/admin/replicas", body))).status == 201
    await operator.closed()
    await router.until_ready(3)
    for _ in range(10):
        await router.ask_each([chat()] * 30)
    counts = [len(replica.requests) for replica in replicas]
    assert sum(counts) == 300
    assert all(75 <= count <= 125 for count in counts), counts


@pytest.mark.parametrize("policy", ["least-outstanding", "round-robin"])
async def test_ties_rotate(start_router: StartRouter, policy: str) -> None:
    replicas = [FakeReplica() for _ in range(4)]
    router = await start_router(*replicas, policy=policy)
    client = await router.connect()
    for _ in range(200):
        assert (await client.ask(chat())).status == 200
    counts = [len(replica.requests) for replica in replicas]
    assert all(24 <= count <= 80 for count in counts), counts
    for _ in range(25):
        await router.ask_each([chat()] * 8)
    shares = [len(replica.requests) - before for replica, before in zip(replicas, counts, strict=True)]
    assert all(43 <= share <= 57 for share in shares), shares


@pytest.mark.parametrize("policy", ["power-of-two", "random"])
async def test_chance_leaves_nobody_out(start_router: StartRouter, policy: str) -> None:
    replicas = [FakeReplica() for _ in range(4)]
    router = await start_router(*replicas, policy=policy)
    client = await router.connect()
    for _ in range(200):
        assert (await client.ask(chat())).status == 200
    assert min(len(replica.requests) for replica in replicas) >= 10


@pytest.mark.parametrize("policy", ["least-outstanding", "round-robin"])
async def test_weights_share_out_load(start_router: StartRouter, policy: str) -> None:
    gate = asyncio.Event()
    script = held(SSE_HEAD + event("1"), gate, LAST_CHUNK)
    small, large = FakeReplica(script), FakeReplica(script, weight=3)
    router = await start_router(small, large, policy=policy)
    clients = [await router.begin(chat()) for _ in range(40)]
    ledger = await router.stage(streaming=40)
    assert ledger.replica(small)["outstanding"] == 10
    assert ledger.replica(large)["outstanding"] == 30
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"


async def test_fewest_outstanding_gets_the_next(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"long" in received.body:
            await connection.send(SSE_HEAD)
            await gate.wait()
            await connection.send(LAST_CHUNK)
        else:
            await connection.send(OK)

    replicas = [FakeReplica(script) for _ in range(3)]
    router = await start_router(*replicas)
    long = [await router.begin(chat(user="long")) for _ in range(2)]
    await router.stage(streaming=2)
    (free,) = [replica for replica in replicas if not replica.requests]
    for _ in range(10):
        assert (await router.ask(chat(user="short"))).status == 200
    assert len(free.requests) == 10
    gate.set()
    for client in long:
        assert (await client.answer()).ended == "clean"


async def test_burst_is_spread_although_gauges_lag(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replicas = [FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)) for _ in range(4)]
    for number, replica in enumerate(replicas):
        replica.probes.gauges = {"vllm:num_requests_running": float(number)}
    router = await start_router(*replicas)
    clients = await asyncio.gather(*(router.begin(chat()) for _ in range(200)))
    await router.stage(streaming=200)
    counts = [len(replica.requests) for replica in replicas]
    assert max(counts) - min(counts) <= 10, counts
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"


async def test_nothing_but_an_ending_changes_a_count(start_router: StartRouter) -> None:
    """Probes that fail and recover, scrapes and readings come and go while streams run."""
    gate = asyncio.Event()
    script = held(SSE_HEAD + event("1"), gate, LAST_CHUNK)
    busy, idle = FakeReplica(script), FakeReplica(script)
    idle.probes.health = 503
    router = await start_router(busy, idle, ready=1, health={"interval": 0.02}, scrape={"interval": 0.02})
    clients = [await router.begin(chat()) for _ in range(20)]
    await router.stage(streaming=20)

    async def state(replica: FakeReplica, wanted: str) -> None:
        async def reached() -> bool:
            ledger = await router.ledger()
            row = ledger.replica(busy)
            assert row["outstanding"] == row["streaming"] == 20
            metrics = await router.metrics()
            assert metrics.value("requests_outstanding", replica=busy.name, stage="streaming") == 20
            return str(ledger.replica(replica)["state"]) == wanted

        await eventually(reached, f"{replica.name} is {wanted}")

    probes = len(busy.probed)
    await eventually(lambda: len(busy.probed) >= probes + 20, "several probes and scrapes")
    busy.probes.health = 503
    await state(busy, "unhealthy")
    busy.probes.health = 200
    await state(busy, "ready")
    idle.probes.health = 200
    await state(idle, "ready")
    clients += [await router.begin(chat()) for _ in range(20)]
    ledger = await router.stage(streaming=40)
    assert ledger.replica(busy)["outstanding"] == 20
    assert ledger.replica(idle)["outstanding"] == 20
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"


def left() -> tuple[int, int]:
    """Tasks of this loop and descriptors of this process."""
    return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))


async def test_no_task_and_no_descriptor_is_left_behind(start_router: StartRouter) -> None:
    async def script(received: Received, connection: Connection) -> None:
        if b"reset" in received.body:
            connection.wire.reset()
        elif b"garbage" in received.body:
            await connection.send(b"garbage\r\n\r\n")
        elif b"silent" in received.body:
            await connection.wire.gone(60)
        else:
            await connection.send(SHORT_STREAM)

    async def wave() -> None:
        users = ["fine"] * 20 + ["reset"] * 10 + ["garbage"] * 10
        await router.ask_each([chat(user=user) for user in users])
        silent = [await router.begin(chat(user="silent")) for _ in range(10)]
        await router.stage(sent=10)
        for client in silent:
            client.leave("rst")
        await router.settled()
        await router.leave()
        await eventually(idle, "idle connections are closed")

    async def idle() -> bool:
        open_ones = [one for one in replica.connections if not one.wire.closed]
        return not open_ones and (await router.ledger())["connector"]["idle"] == 0

    replica = FakeReplica(script)
    router = await start_router(
        replica, health={"interval": 1000}, scrape={"interval": 1000}, connector={"keepalive": 0.1}
    )
    await wave()
    tasks, descriptors = left()
    for _ in range(3):
        await wave()

    def back_at_rest() -> bool:
        now = left()
        return now[0] <= tasks and now[1] <= descriptors

    await eventually(back_at_rest, f"{tasks} tasks and {descriptors} descriptors again")


async def test_stopped_router_leaves_nothing_open(start_router: StartRouter) -> None:
    replica = FakeReplica()
    await start_router(replica)

    async def once() -> tuple[int, int]:
        router = await start_router(replica.settings["url"], ready=1)
        assert (await router.ask(chat())).status == 200
        await router.leave()
        await router.stop()
        await asyncio.sleep(0)
        return left()

    first = await once()
    for _ in range(3):
        await once()

    async def no_more() -> bool:
        now = await once()
        return now[0] <= first[0] + 1 and now[1] <= first[1] + 2

    await eventually(no_more, f"no more than {first} tasks and descriptors")
