"""What the router believes of a replica while it works: busy is not dead, loading is not ready, and a
newcomer starts slowly."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.fakes.client import Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    Script,
    event,
    held,
    reply,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.states import probed, row, until
from tests.fakes.wire import eventually

Late = Callable[..., FakeReplica]
END = event("[DONE]") + LAST_CHUNK


def ticking(gate: asyncio.Event) -> Script:
    """A stream with an event every 10 ms until the gate opens."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while not gate.is_set():
            await connection.send(event("token"))
            await asyncio.sleep(0.01)
        await connection.send(END)

    return script


async def ask_until(router: RunningRouter, stop: asyncio.Event) -> Counter[int]:
    """Small requests one after another; how often each status came."""
    statuses: Counter[int] = Counter()
    while not stop.is_set():
        statuses[(await router.ask(chat(stream=False))).status] += 1
    return statuses


# Busy is not dead


@pytest.mark.parametrize("count", [1, 3])
async def test_a_replica_that_delivers_is_not_taken_out_for_late_probes(
    start_router: StartRouter, count: int
) -> None:
    """H56"""
    gate = asyncio.Event()
    replicas = [FakeReplica(ticking(gate)) for _ in range(count)]
    router = await start_router(*replicas, health={"interval": 0.1, "timeout": 0.1, "unhealthy_after": 2})
    clients = [await router.begin(chat()) for _ in range(5 * count)]
    await router.stage(streaming=5 * count)
    for replica in replicas:
        replica.probes.answering.clear()
    for replica in replicas:
        await probed(replica, 8)
        assert (await row(router, replica))["state"] == "ready"
    clients += [await router.begin(chat()) for _ in range(count)]
    await router.stage(streaming=6 * count)

    gate.set()
    answers = [await client.answer() for client in clients]
    assert [(answer.status, answer.ended) for answer in answers] == [(200, "clean")] * 6 * count
    metrics = await router.metrics()
    assert metrics.value("replica_state", state="ready") == count
    for replica in replicas:
        replica.probes.answering.set()


async def test_a_replica_that_does_nothing_is_taken_out_for_late_probes(start_router: StartRouter) -> None:
    """The other half of H56: several misses in a row, and a return after so many passes."""
    replica = FakeReplica()
    router = await start_router(
        replica, health={"interval": 0.1, "timeout": 0.1, "unhealthy_after": 2, "healthy_after": 2}
    )
    replica.probes.answering.clear()
    await until(router, replica, "unhealthy")
    (await router.ask(chat())).refused(503, "no_replica")
    replica.probes.answering.set()
    await until(router, replica, "ready")
    assert (await router.ask(chat())).status == 200


# Loading


@pytest_asyncio.fixture
async def late() -> AsyncIterator[Late]:
    """Replicas that refuse connections until they `listen`."""
    fakes: list[FakeReplica] = []

    def make(script: Script | None = None) -> FakeReplica:
        fakes.append(FakeReplica(script))
        return fakes[-1]

    yield make
    for replica in fakes:
        await replica.stop()
    assert [fault for replica in fakes for fault in replica.faults] == []


async def test_a_replica_that_loads_gets_nothing_until_it_is_ready(
    late: Late, start_router: StartRouter
) -> None:
    """H60"""
    up, coming = FakeReplica(), late()
    health = {"interval": 0.05, "timeout": 0.1, "slow_start": 0}
    router = await start_router(up, coming.settings["url"], ready=1, health=health)
    stop = asyncio.Event()
    asking = asyncio.ensure_future(ask_until(router, stop))
    try:
        coming.probes.health, coming.probes.models = 503, []
        coming.probes.answering.clear()
        await coming.listen()
        await probed(coming, 3)
        coming.probes.answering.set()
        await probed(coming, 3)
        coming.probes.health = 200
        await probed(coming, 3)
        assert (await row(router, coming))["state"] == "loading"
        assert coming.requests == []
        coming.probes.models = ["m1"]
        await coming.received(1)
    finally:
        stop.set()
        statuses = await asking
    assert set(statuses) == {200}
    assert statuses[200] > 10


async def test_the_only_replica_of_a_model_is_worth_waiting_for_while_it_loads(
    late: Late, start_router: StartRouter
) -> None:
    """H60"""
    up, coming = FakeReplica(), late()
    router = await start_router(up, coming.settings["url"], ready=1)
    answer = await router.ask(chat(model="m9"))
    answer.refused(503, "no_replica")
    assert answer.head.get("Retry-After") == "1"

    coming.probes.models = ["m9"]
    await coming.listen()
    await until(router, coming, "ready")
    assert (await router.ask(chat(stream=False, model="m9"))).status == 200


# Newcomers


@pytest.mark.parametrize("slow_start", [0, 600])
async def test_a_newcomer_is_not_overrun(late: Late, start_router: StartRouter, slow_start: float) -> None:
    """H61"""
    gate = asyncio.Event()
    script = held(SSE_HEAD, gate, END)
    old, new = [FakeReplica(script), FakeReplica(script)], late(script)
    router = await start_router(*old, new.settings["url"], ready=2, health={"slow_start": slow_start})
    clients = [await router.begin(chat()) for _ in range(30)]
    await router.stage(streaming=30)
    await new.listen()
    await until(router, new, "ready")
    for number in range(1, 21):
        clients.append(await router.begin(chat()))
        ledger = await router.stage(streaming=30 + number)
        counts = [ledger.replica(replica)["outstanding"] for replica in (new, *old)]
        assert counts[0] <= min(counts[1:]) + 1, counts
    taken = len(new.requests)
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"
    assert taken <= 4 if slow_start else taken >= 15


async def test_the_share_of_a_newcomer_grows(late: Late, start_router: StartRouter) -> None:
    """H61"""
    new = late()
    router = await start_router(FakeReplica(), new.settings["url"], ready=1, health={"slow_start": 1})
    await new.listen()
    await until(router, new, "ready")
    shares = [(await row(router, new))["share"]]
    assert shares[0] < 0.9

    async def full() -> bool:
        shares.append((await row(router, new))["share"])
        return bool(shares[-1] == 1)

    await eventually(full, "its share is full")
    assert shares == sorted(shares)
    assert len(set(shares)) > 3


# Crash


async def test_a_crash_ends_its_own_streams_and_nothing_else(start_router: StartRouter) -> None:
    """H62"""
    gate = asyncio.Event()
    crashing, other = (FakeReplica(ticking(gate), name=name) for name in ("crashing", "other"))
    router = await start_router(crashing, other, health={"slow_start": 0}, eject={"base_seconds": 0.3})
    clients: list[Client] = [await router.begin(chat()) for _ in range(40)]
    await router.stage(streaming=40)
    for client in clients:
        await client.wire.expect(event("token"))
    lost = len(crashing.requests)
    assert lost == 20
    other.script = crashing.script = reply(OK)
    stop = asyncio.Event()
    asking = asyncio.ensure_future(ask_until(router, stop))

    await crashing.refuse()
    crashing.reset_all()
    await until(router, crashing, "unhealthy")
    await router.stage(streaming=20)
    crashing.requests.clear()
    await crashing.listen()
    await until(router, crashing, "ready")
    await crashing.received(5)
    gate.set()
    stop.set()

    answers = [await client.answer() for client in clients]
    assert Counter(answer.ended for answer in answers) == {"dirty": lost, "clean": 40 - lost}
    for answer in answers:
        tokens = [part for part in answer.body.chunks if part == b"data: token\n\n"]
        ending = answer.body.chunks[len(tokens) :]
        if answer.ended == "clean":
            assert ending == [b"data: [DONE]\n\n"]
        else:
            assert all(b"replica_disconnected" in part for part in ending)
    assert set(await asking) == {200}
    await router.settled()


# Counts


async def test_nothing_but_the_ends_of_requests_changes_a_count(
    late: Late, start_router: StartRouter
) -> None:
    """H69"""
    gate = asyncio.Event()
    script = held(SSE_HEAD, gate, END)
    busy, idle = FakeReplica(script), late(script)
    router = await start_router(
        busy, idle.settings["url"], ready=1, health={"interval": 0.05, "unhealthy_after": 2, "slow_start": 0}
    )
    clients = [await router.begin(chat()) for _ in range(20)]
    await router.stage(streaming=20)
    await idle.listen()
    await until(router, idle, "ready")
    counts = set()

    async def look(state: str) -> None:
        async def reached() -> bool:
            metrics = await router.metrics()
            counts.add(metrics.value("requests_outstanding", replica=busy.name))
            return metrics.value("replica_state", replica=busy.name, state=state) == 1

        await eventually(reached, f"it is {state}")

    await probed(busy, 3)
    busy.probes.health = 503
    await look("unhealthy")
    busy.probes.health = 200
    await look("ready")
    await probed(busy, 3)
    clients += [await router.begin(chat()) for _ in range(20)]
    await router.stage(streaming=40)

    assert counts == {20}
    assert (len(busy.requests), len(idle.requests)) == (20, 20)
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"
