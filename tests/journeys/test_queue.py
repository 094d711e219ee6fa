"""The queue in front of full replicas: visible, in order of arrival, bounded, and nobody is lost in it."""

import asyncio
import json
import random

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import AbruptClient, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, reply, sized
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import Ending, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
ONE = {"max_outstanding_per_replica": 1}


def users(replica: FakeReplica) -> list[str]:
    return [json.loads(received.body)["user"] for received in replica.requests]


class Turnstile:
    """A script that answers one request for each call of `let`, and knows how many it holds."""

    def __init__(self) -> None:
        self._turns: asyncio.Queue[None] = asyncio.Queue()
        self.most = 0
        self._held = 0

    async def script(self, _: Received, connection: Connection) -> None:
        self._held += 1
        self.most = max(self.most, self._held)
        try:
            await self._turns.get()
        finally:
            self._held -= 1
        await connection.send(OK)

    def let(self, count: int) -> None:
        for _ in range(count):
            self._turns.put_nowait(None)


@pytest.mark.parametrize("policy", POLICIES)
async def test_full_replicas_queue_requests_in_order_of_arrival(
    start_router: StartRouter, policy: str
) -> None:
    turnstile = Turnstile()
    replicas = [FakeReplica(turnstile.script) for _ in range(2)]
    router = await start_router(*replicas, policy=policy, admission={"max_outstanding_per_replica": 2})
    clients: list[Client] = []
    for number in range(12):
        clients.append(await router.begin(chat(user=str(number))))
        stages = {"sent": min(4, number + 1), "queued": max(0, number - 3)}
        await router.stage(**{stage: count for stage, count in stages.items() if count})
    metrics = await router.metrics()
    assert metrics.value("requests_queued", model="m1") == 8
    for number in range(4, 12):
        turnstile.let(1)
        await eventually(
            lambda: len(replicas[0].requests + replicas[1].requests) > number,  # noqa: B023 - asked at once
            f"request {number} is sent",
        )
        assert str(number) in users(replicas[0]) + users(replicas[1])
    turnstile.let(4)
    assert [(await client.answer()).status for client in clients] == [200] * 12
    assert turnstile.most <= 4
    assert (await router.metrics()).value("queue_seconds_count", model="m1") == 12


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_the_queue_is_never_sent(start_router: StartRouter, how: Ending) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    router = await start_router(replica, admission=ONE)
    holder = await router.begin(chat(user="holder"))
    await holder.wire.expect(event("1"))
    waiting = [await router.begin(chat(user=f"waits {number}")) for number in range(20)]
    await router.stage(streaming=1, queued=20)
    for client in waiting:
        client.leave(how)
    assert (await router.stage(streaming=1)).finished == {"client_gone": 20}
    assert (await router.metrics()).value("client_gone_total", stage="queued") == 20
    gate.set()
    assert (await holder.answer()).ended == "clean"
    assert (await router.ask(chat(user="after"))).ended == "clean"
    assert users(replica) == ["holder", "after"]


async def test_departures_in_the_queue_do_not_cost_the_others_their_turn(start_router: StartRouter) -> None:
    turnstile = Turnstile()
    replica = FakeReplica(turnstile.script)
    router = await start_router(replica, admission=ONE)
    clients = [await router.begin(chat(user=str(number))) for number in range(9)]
    await router.stage(sent=1, queued=8)
    for client in clients[1::2]:
        client.leave()
    await router.stage(sent=1, queued=4)
    turnstile.let(5)
    assert [(await client.answer()).status for client in clients[::2]] == [200] * 5
    assert users(replica) == ["0", "2", "4", "6", "8"]
    assert turnstile.most == 1


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("first", ["answer", "departure"])
async def test_room_granted_as_its_waiter_leaves_goes_to_the_next(
    start_router: StartRouter, first: str, how: Ending
) -> None:
    """Both in one turn of the loop, so that the leaver may be given the room and never take it."""

    async def script(received: Received, connection: Connection) -> None:
        if b"holder" in received.body:
            await answered.get()
        else:
            await connection.send(OK)

    answered: asyncio.Queue[None] = asyncio.Queue()

    replica = FakeReplica(script)
    router = await start_router(replica, admission=ONE)
    for _ in range(5):
        holder = await router.begin(chat(user="holder"))
        await router.stage(sent=1)
        leaver = AbruptClient(router.port, chat(user="leaver"))
        await router.stage(sent=1, queued=1)
        next_one = await router.begin(chat(user="next"))
        await router.stage(sent=1, queued=2)
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


async def test_waiting_too_long_is_a_503(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, admission={**ONE, "queue_timeout": 0.2})
    holder = await router.begin(chat(user="holder"))
    await router.stage(sent=1)
    for answer in await router.ask_each([chat(user="late")] * 3):
        answer.refused(503, "queue_timeout")
        assert int(answer.head.get("retry-after") or 0) >= 1
    gate.set()
    assert (await holder.answer()).status == 200
    assert (await router.ask(chat(user="after"))).status == 200
    assert users(replica) == ["holder", "after"]
    assert (await router.metrics()).value("shed_total", reason="queue_timeout") == 3


async def test_full_queue_is_a_429(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, admission={**ONE, "max_queued": 2})
    clients = [await router.begin(chat()) for _ in range(3)]
    await router.stage(sent=1, queued=2)
    answer = await router.ask(chat())
    answer.refused(429, "queue_full")
    assert int(answer.head.get("retry-after") or 0) >= 1
    assert (await router.metrics()).value("shed_total", reason="queue_full") == 1
    clients.pop().leave()
    await router.stage(sent=1, queued=1)
    clients.append(await router.begin(chat()))
    await router.stage(sent=1, queued=2)
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize("ending", ["left", "reset", "cut", "error", "bad", "timeout", "ok"])
async def test_every_ending_lets_the_next_in(start_router: StartRouter, ending: str) -> None:
    most = 0
    now = 0

    async def script(received: Received, connection: Connection) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            if b"next" in received.body or ending == "ok":
                await connection.send(OK)
            elif ending == "error":
                await connection.send(sized(b"{}", status="500 Broken"))
            elif ending == "bad":
                await connection.send(b"garbage\r\n\r\n")
            elif ending == "reset":
                connection.wire.reset()
            elif ending == "cut":
                await connection.send(SSE_HEAD + event("1"))
                connection.wire.close()
            else:
                await connection.wire.gone(60)
        finally:
            now -= 1

    def last_body() -> bytes:
        return replica.requests[-1].body if replica.requests else b""

    replica = FakeReplica(script)
    timeouts = {"response_head": 0.1} if ending == "timeout" else {}
    router = await start_router(replica, admission=ONE, timeouts=timeouts)
    for _ in range(15):
        first = await router.begin(chat(user="first"))
        await eventually(
            lambda: replica.requests and b"first" in replica.requests[-1].body, "the first is sent"
        )
        second = await router.begin(chat(user="next"))
        if ending == "left":
            first.leave()
        assert (await second.answer()).status == 200
    assert most == 1
    assert (await router.settled()).finished["ok"] >= 15


async def test_slot_is_free_only_after_the_last_byte(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"first" in received.body:
            await connection.send(SSE_HEAD + event("1"))
            await gate.wait()
            seen.append(len(replica.requests))
            await connection.send(LAST_CHUNK)
        else:
            await connection.send(OK)

    seen: list[int] = []
    replica = FakeReplica(script)
    router = await start_router(replica, admission=ONE)
    first = await router.begin(chat(user="first"))
    await first.wire.expect(event("1"))
    second = await router.begin(chat(user="second"))
    await router.stage(streaming=1, queued=1)
    gate.set()
    assert (await first.answer()).ended == "clean"
    assert (await second.answer()).status == 200
    assert seen == [1]


async def test_limit_of_one_replica_is_its_own(start_router: StartRouter) -> None:
    turnstile = Turnstile()
    small = FakeReplica(turnstile.script, max_outstanding=1)
    large = FakeReplica(turnstile.script, max_outstanding=3)
    router = await start_router(small, large)
    clients = [await router.begin(chat()) for _ in range(6)]
    ledger = await router.stage(sent=4, queued=2)
    assert ledger.replica(small)["outstanding"] == 1
    assert ledger.replica(large)["outstanding"] == 3
    turnstile.let(6)
    for client in clients:
        assert (await client.answer()).status == 200


async def test_newcomer_takes_from_the_queue(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    full, late = FakeReplica(held(b"", gate, OK)), FakeReplica()
    late.probes.health = 503
    router = await start_router(full, late, ready=1, admission=ONE)
    clients = [await router.begin(chat()) for _ in range(4)]
    await router.stage(sent=1, queued=3)
    late.probes.health = 200
    for client in clients[1:]:
        assert (await client.answer()).status == 200
    assert len(late.requests) == 3
    gate.set()
    assert (await clients[0].answer()).status == 200


async def test_queue_of_a_pool_that_dies_is_told_in_time(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, admission={**ONE, "queue_timeout": 0.5})
    clients = [await router.begin(chat()) for _ in range(3)]
    await router.stage(sent=1, queued=2)
    replica.probes.health = 503
    for client in clients[1:]:
        answer = await client.answer()
        answer.refused(503, answer.json()["error"]["code"])
        assert int(answer.head.get("retry-after") or 0) >= 1
    gate.set()
    assert (await clients[0].answer()).status == 200
    assert len(replica.requests) == 1


async def test_replica_that_refuses_a_waiter_leaves_it_another(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    first, second = [FakeReplica(held(b"", gate, OK)) for _ in range(2)]
    router = await start_router(first, second, admission=ONE, health={"interval": 1000})
    clients = [await router.begin(chat()) for _ in range(6)]
    await router.stage(sent=2, queued=4)
    await first.refuse()
    first.reset_all()
    gate.set()
    statuses = sorted([(await client.answer()).status for client in clients])
    assert statuses == [200] * 5 + [502]


async def test_models_of_one_replica_share_its_room(start_router: StartRouter) -> None:
    """A freed slot goes to the oldest waiter over all models of the replica."""
    turnstile = Turnstile()
    replica = FakeReplica(turnstile.script)
    replica.probes.models = ["base", "lora"]
    router = await start_router(replica, admission=ONE)
    order = ["base", "lora", "lora", "base", "lora"]
    clients = []
    for number, model in enumerate(order):
        clients.append(await router.begin(chat(model=model, user=str(number))))
        await router.stage(**({"sent": 1, "queued": number} if number else {"sent": 1}))
    metrics = await router.metrics()
    assert metrics.value("requests_queued", model="lora") == 3
    assert metrics.value("requests_queued", model="base") == 1
    turnstile.let(5)
    for client in clients:
        assert (await client.answer()).status == 200
    assert users(replica) == ["0", "1", "2", "3", "4"]
    assert turnstile.most == 1


async def test_full_pool_does_not_hold_up_another(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    full, free = FakeReplica(held(b"", gate, OK), models=["full"]), FakeReplica(models=["free"])
    router = await start_router(full, free, admission=ONE)
    clients = [await router.begin(chat(model="full")) for _ in range(3)]
    await router.stage(sent=1, queued=2)
    for _ in range(5):
        assert (await router.ask(chat(model="free"))).status == 200
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


async def test_queue_in_the_router_is_proxy_limited(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, admission=ONE)
    clients = [await router.begin(chat()) for _ in range(2)]
    await router.stage(sent=1, queued=1)

    async def limited() -> bool:
        return bool((await router.ledger())["proxy_limited"])

    await eventually(limited, "the router says that it is the limit")
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200
    assert not await limited()


async def test_wave_of_impatient_clients_leaves_the_queue_working(start_router: StartRouter) -> None:
    """Waiters that time out, leave and are granted at the same moments lose no room for ever."""
    chance = random.Random(3)
    replica = FakeReplica(reply(OK))
    router: RunningRouter = await start_router(
        replica, admission={"max_outstanding_per_replica": 2, "queue_timeout": 0.05}
    )

    async def slow(_: Received, connection: Connection) -> None:
        await asyncio.sleep(chance.random() * 0.02)
        await connection.send(OK)

    replica.script = slow

    async def impatient() -> None:
        client = await router.begin(chat())
        await asyncio.sleep(chance.random() * 0.08)
        client.leave(chance.choice(ENDINGS))

    await asyncio.gather(*(impatient() for _ in range(200)))
    await router.settled()
    replica.script = reply(OK)
    for _ in range(50):
        assert (await router.ask(chat())).status == 200
    ledger = await router.settled()
    assert set(ledger.finished) <= {"ok", "client_gone", "queue_timeout"}
    assert sum(ledger.finished.values()) == ledger["received_total"]


async def test_who_waits_is_served_by_the_replica_that_takes_over_the_model(
    start_router: StartRouter,
) -> None:
    gate = asyncio.Event()
    old, new = FakeReplica(held(b"", gate, OK)), FakeReplica()
    router = await start_router(old, admission={"max_outstanding_per_replica": 1})
    running = await router.begin(chat(stream=False))
    await router.stage(sent=1)
    waiting = await router.begin(chat(stream=False))
    await router.stage(sent=1, queued=1)
    assert (await router.admin(f"/admin/replicas/{old.name}", "DELETE")).status == 202
    gate.set()
    assert (await running.answer()).status == 200

    async def gone() -> bool:
        return not (await router.ledger())["replicas"]

    await eventually(gone, "the old replica has left")
    async with new:
        added = await router.admin_send(request("POST", "/admin/replicas", json.dumps(new.settings).encode()))
        assert added.status == 201
        answer = await waiting.answer()
        assert answer.status == 200
        assert answer.head.get("x-replicarouter-replica") == new.name
        await router.leave()
