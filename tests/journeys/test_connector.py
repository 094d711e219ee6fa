"""The connector's limit: what waits for a connection is visible, in order, bounded, and never lost."""

import asyncio
import json
import resource
from collections.abc import Iterator

import pytest

from tests.fakes.client import AbruptClient, Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, sized
from tests.fakes.running import Metrics, RunningRouter, StartRouter
from tests.fakes.wire import Ending, eventually

CLOSING = sized(b"{}", headers="Connection: close\r\n")


def users(replica: FakeReplica) -> list[str]:
    return [json.loads(received.body)["user"] for received in replica.requests]


async def limited(router: RunningRouter, wanted: float) -> Metrics:
    """Wait until the router says whether it is what limits the fleet; the page that says so."""
    seen: Metrics | None = None

    async def said() -> bool:
        nonlocal seen
        seen = await router.metrics()
        return seen.value("proxy_limited") == wanted

    await eventually(said, f"proxy_limited is {wanted}")
    assert seen is not None
    return seen


async def test_requests_above_the_limit_wait_visibly_and_are_served_in_order(
    start_router: StartRouter,
) -> None:
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def script(_: Received, connection: Connection) -> None:
        await turns.get()
        await connection.send(OK)

    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 2})
    clients: list[Client] = []
    for number in range(5):
        clients.append(await router.begin(chat(user=str(number))))
        await router.stage(
            **{
                stage: count
                for stage, count in (("sent", min(2, number + 1)), ("connecting", max(0, number - 1)))
                if count
            }
        )
    assert users(replica) == ["0", "1"]
    metrics = await limited(router, 1)
    assert metrics.value("requests_outstanding", stage="sent") == 2
    assert metrics.value("requests_outstanding", stage="connecting") == 3
    assert metrics.value("connector_waiting") == 3
    assert metrics.value("connector_limit") == 2
    assert metrics.value("connector_connections", replica=replica.name, state="busy") == 2
    ledger = await router.ledger()
    assert ledger["connector"] == {"limit": 2, "waiting": 3, "busy": 2, "idle": 0}
    assert ledger["proxy_limited"] is True
    assert ledger["accepted"] == 5
    for _ in clients:
        turns.put_nowait(None)
    assert [(await client.answer()).status for client in clients] == [200] * 5
    assert users(replica) == ["0", "1", "2", "3", "4"]
    assert len(replica.used_connections) == 2
    assert (await limited(router, 0)).value("connector_waiting") == 0


async def test_fleet_whose_engines_queue_is_not_proxy_limited(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    replica.probes.gauges = {"vllm:num_requests_waiting": 3.0}
    router = await start_router(replica, connector={"limit": 1})
    clients = [await router.begin(chat()) for _ in range(3)]
    await router.stage(streaming=1, connecting=2)

    async def old_enough() -> bool:
        """The oldest has waited longer than it takes to call the router the limit."""
        requests = (await router.admin("/admin/requests")).json()["requests"]
        waiting = [row["age"] for row in requests if row["stage"] == "connecting"]
        return bool(min(waiting) > 0.2)

    await eventually(old_enough, "requests have waited")
    assert (await router.metrics()).value("proxy_limited") == 0
    replica.probes.gauges = {}
    await limited(router, 1)
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"


async def test_slot_is_held_until_the_last_byte(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"first" in received.body:
            await connection.send(SSE_HEAD + event("1"))
            await gate.wait()
            ended.append(len(replica.requests))
            await connection.send(LAST_CHUNK)
        else:
            await connection.send(OK)

    ended: list[int] = []
    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 1})
    first = await router.begin(chat(user="first"))
    await first.wire.expect(event("1"))
    second = await router.begin(chat(user="second"))
    await router.stage(streaming=1, connecting=1)
    gate.set()
    assert (await first.answer()).ended == "clean"
    assert (await second.answer()).status == 200
    assert ended == [1]


async def test_waiting_is_bounded_by_the_queue_timeout(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    router = await start_router(
        replica,
        connector={"limit": 1},
        admission={"queue_timeout": 0.2},
        timeouts={"connect": 0.05},
    )
    holder = await router.begin(chat(user="holder"))
    await holder.wire.expect(event("1"))
    answers = await router.ask_each([chat(user=str(number)) for number in range(3)])
    for answer in answers:
        answer.refused(503, "queue_timeout")
        assert int(answer.head.get("retry-after") or 0) >= 1
    ledger = await router.stage(streaming=1)
    assert ledger["connector"]["waiting"] == 0
    assert ledger.finished == {"queue_timeout": 3}
    assert (await router.metrics()).value("shed_total", reason="queue_timeout") == 3
    gate.set()
    assert (await holder.answer()).ended == "clean"
    assert users(replica) == ["holder"]
    gate.set()
    assert (await router.ask(chat(user="after"))).ended == "clean"


async def test_timeouts_and_departures_of_waiters_lose_no_slot(start_router: StartRouter) -> None:
    """After waves of waiters that give up, the limit still holds and everybody is served."""
    gate = asyncio.Event()
    most = 0

    async def script(received: Received, connection: Connection) -> None:
        nonlocal most
        most = max(most, sum(not served for served in serving.values()) + 1)
        serving[received] = False
        await gate.wait()
        serving[received] = True
        await connection.send(OK)

    serving: dict[Received, bool] = {}
    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 3}, admission={"queue_timeout": 0.3})
    holders = [await router.begin(chat(user="holder")) for _ in range(3)]
    await router.stage(sent=3)
    leaving = [await router.begin(chat(user="leaves")) for _ in range(20)]
    staying = [await router.begin(chat(user="stays")) for _ in range(20)]
    for number, client in enumerate(leaving):
        client.leave("fin" if number % 2 else "rst")
    for client in staying:
        (await client.answer()).refused(503, "queue_timeout")
    gate.set()
    for client in holders:
        assert (await client.answer()).status == 200
    for _ in range(20):
        assert (await router.ask(chat(user="one"))).status == 200
    answers = await router.ask_each([chat(user="many")] * 30)
    assert [answer.status for answer in answers] == [200] * 30
    assert most <= 3
    assert (await router.settled())["connector"]["waiting"] == 0


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("first", ["answer", "departure"])
async def test_slot_granted_as_its_waiter_leaves_goes_to_the_next(
    start_router: StartRouter, first: str, how: Ending
) -> None:
    """Both in one turn of the loop, so that the leaver may be given the slot and never take it."""

    async def script(received: Received, connection: Connection) -> None:
        if b"holder" in received.body:
            await answered.get()
        else:
            await connection.send(OK)

    answered: asyncio.Queue[None] = asyncio.Queue()

    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 1})
    for _ in range(5):
        holder = await router.begin(chat(user="holder"))
        await router.stage(sent=1)
        leaver = AbruptClient(router.port, chat(user="leaver"))
        await router.stage(sent=1, connecting=1)
        next_one = await router.begin(chat(user="next"))
        await router.stage(sent=1, connecting=2)
        wire = replica.requests[-1].connection.wire
        if first == "departure":
            leaver.leave(how)
        wire.send_at_once(OK)
        answered.put_nowait(None)
        if first == "answer":
            leaver.leave(how)
        assert (await holder.answer()).status == 200
        assert (await next_one.answer()).status == 200
    assert "leaver" not in users(replica)


async def test_limit_per_replica_holds_at_each(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replicas = [FakeReplica(held(b"", gate, OK)) for _ in range(2)]
    router = await start_router(*replicas, connector={"limit_per_replica": 2})
    clients = [await router.begin(chat()) for _ in range(7)]
    ledger = await router.stage(sent=4, connecting=3)
    assert [ledger.replica(replica)["sent"] for replica in replicas] == [2, 2]
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


async def test_full_replica_does_not_hold_up_requests_for_another(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    full, free = FakeReplica(held(b"", gate, OK), models=["full"]), FakeReplica(models=["free"])
    router = await start_router(full, free, connector={"limit_per_replica": 1})
    clients = [await router.begin(chat(model="full")) for _ in range(3)]
    await router.stage(sent=1, connecting=2)
    assert (await router.ask(chat(model="free"))).status == 200
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


async def test_probes_and_readings_need_no_slot(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, connector={"limit": 1}, health={"interval": 0.05})
    holder = await router.begin(chat())
    await router.stage(sent=1)
    before = len(replica.probed)
    await eventually(lambda: len(replica.probed) > before + 10, "probes go on")
    row = (await router.ledger()).replica(replica)
    assert row["state"] == "ready"
    assert row["reading_age"] < 2
    gate.set()
    assert (await holder.answer()).status == 200


async def test_limit_is_not_exceeded_by_connections_that_idle(start_router: StartRouter) -> None:
    """An idle connection to one replica must not keep the other from being used."""
    first, second = FakeReplica(models=["m1"]), FakeReplica(models=["m2"])
    router = await start_router(first, second, connector={"limit": 1}, admission={"queue_timeout": 1})
    for _ in range(3):
        assert (await router.ask(chat(model="m1"))).status == 200
        assert (await router.ask(chat(model="m2"))).status == 200


@pytest.mark.parametrize("ending", ["left", "reset", "refused", "timeout", "bad"])
async def test_every_ending_gives_its_slot_back(start_router: StartRouter, ending: str) -> None:
    async def script(received: Received, connection: Connection) -> None:
        if b"probe" in received.body:
            await connection.send(CLOSING)
            connection.wire.close()
        elif ending == "reset":
            connection.wire.reset()
        elif ending == "bad":
            await connection.send(b"garbage\r\n\r\n")
        else:
            await connection.wire.gone(60)

    replica, spare = FakeReplica(script), FakeReplica(script, models=["other"])
    router = await start_router(
        replica,
        spare,
        connector={"limit": 1},
        timeouts={"response_head": 0.05} if ending == "timeout" else {},
        health={"interval": 0.05},
    )
    for _ in range(10):
        if ending == "refused":
            await replica.refuse()
            assert (await router.ask(chat())).status in {502, 503}
            await replica.listen()
            await router.until_ready(2)
        elif ending == "left":
            client = await router.begin(chat())
            await router.stage(sent=1)
            client.leave()
        else:
            assert (await router.ask(chat())).status in {502, 504}
        assert (await router.ask(chat(user="probe"))).status == 200


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for some thousands of sockets in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 8000
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the hard limit of {hard} descriptors is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
async def test_1500_streams_are_open_at_once_without_a_limit(start_router: StartRouter) -> None:
    """No step at 100, 1,000 or 1,024 connections: each stream gets its first event at once."""
    gate = asyncio.Event()
    replicas = [FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)) for _ in range(2)]
    router = await start_router(*replicas)
    clients: list[Client] = []
    for count in (99, 101, 999, 1001, 1023, 1025, 1500):
        more = [await router.begin(chat()) for _ in range(count - len(clients))]
        for client in more:
            await client.wire.expect(event("1"))
        clients += more
        ledger = await router.stage(streaming=count)
        assert ledger["connector"]["waiting"] == 0
        assert ledger["connector"]["busy"] == count
    assert [len(replica.requests) for replica in replicas] == [750, 750]
    assert (await router.get("/health")).status == 200
    gate.set()
    for client in clients:
        assert (await client.answer()).body.raw == event("1") + event("2") + LAST_CHUNK
    assert (await router.settled()).finished == {"ok": 1500}
