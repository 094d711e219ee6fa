"""Fair order between callers, urgent requests first, and who is turned away when the queue is full."""

import asyncio
import json
import random
import re
import time
from collections import Counter

import pytest

from tests.fakes.client import Answer, Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, reply, sized
from tests.fakes.running import Metrics, RunningRouter, StartRouter
from tests.fakes.wire import eventually

ONE = {"max_outstanding_per_replica": 1}
KEYS = {"flood": "key-of-flood", "small": "key-of-small"}
PRIORITY = {"name": "X-Priority", "values": ["high", "normal"]}


def by(caller: str, *, user: str | None = None, **headers: str) -> bytes:
    """A request with the key of a caller; the replica sees `user`, which is its name unless given."""
    fields = {"Authorization": f"Bearer {KEYS[caller]}", **headers}
    return chat(user=user or caller, stream=False, headers=fields)


def via(address: str) -> bytes:
    """A request that a proxy forwards for a client at this address."""
    return chat(user=address, stream=False, headers={"X-Forwarded-For": address})


def users(replica: FakeReplica) -> list[str]:
    return [json.loads(received.body)["user"] for received in replica.complete]


def waited(answer: Answer) -> float:
    """Seconds that the request was queued, by its receipt."""
    found = re.search(r"queue;dur=([0-9.]+)", answer.head.get("server-timing") or "")
    assert found, answer.head.raw
    return float(found[1]) / 1000


async def metrics(router: RunningRouter) -> Metrics:
    """The page of the admin port, for which a caller's key is not needed."""
    return Metrics((await router.admin("/metrics")).body.entity.decode())


async def one_by_one(replica: FakeReplica, turns: "asyncio.Queue[None]", count: int) -> list[str]:
    """Let the replica answer `count` requests, each once the one before has been; whose came meanwhile."""
    before = len(users(replica))
    for number in range(count):
        turns.put_nowait(None)
        await eventually(
            lambda: len(users(replica)) > before + number,  # noqa: B023 - asked at once
            "the next request comes",
        )
    return users(replica)[before:]


def in_turn(served: list[str], expected: list[str], workers: int) -> bool:
    """Whether this is the order. One of several workers that the operating system keeps waiting loses its
    turn: then only who was served is certain here, and `tests/admission/test_turns.py` sees to the order."""
    return sorted(served) == sorted(expected) if workers else served == expected


def turnstile() -> "tuple[FakeReplica, asyncio.Queue[None]]":
    """A replica that answers one request for each item that is put."""
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def script(_: Received, connection: Connection) -> None:
        await turns.get()
        await connection.send(OK)

    return FakeReplica(script), turns


async def fill(router: RunningRouter, requests: list[bytes]) -> list[Client]:
    """Send the first, which takes the room, and queue the others in this order."""
    clients: list[Client] = []
    for number, raw in enumerate(requests):
        clients.append(await router.begin(raw))
        await router.stage(**({"sent": 1, "queued": number} if number else {"sent": 1}))
    return clients


# Turns


async def test_a_flood_of_one_key_does_not_delay_another(start_router: StartRouter) -> None:
    """H27"""

    async def script(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.2)
        await connection.send(OK)

    replica = FakeReplica(script, max_outstanding=4)
    router = await start_router(replica, api_keys=KEYS)
    flood = [await router.begin(by("flood")) for _ in range(1000)]
    await eventually(lambda: len(replica.requests) >= 4, "the flood has come")
    waits = [waited(await router.ask(by("small"))) for _ in range(5)]
    assert max(waits) < 1.0
    assert (await metrics(router)).value("queue_seconds_count", model="m1") > 5
    for client in flood:
        client.leave()
    await router.settled()


async def test_callers_without_keys_are_told_apart_by_address(start_router: StartRouter) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, admission=ONE, trusted_proxies=["127.0.0.0/8"])
    flood, small = "192.0.2.1", "192.0.2.2"
    clients = await fill(router, [via(flood)] * 8 + [via(small)] * 2)
    assert await one_by_one(replica, turns, 9) == [small, flood, small] + [flood] * 6
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in clients] == [200] * 10


async def test_shares_give_a_caller_more_turns(start_router: StartRouter, workers: int) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, api_keys=KEYS, admission={**ONE, "shares": {"small": 2}})
    clients = await fill(router, [by("flood")] * 14 + [by("small")] * 13)
    served = Counter((await one_by_one(replica, turns, 26))[:18])
    # By equal shares it would be nine; as for the order see `in_turn`.
    assert abs(served["small"] - 12) <= (2 if workers else 0)
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in clients] == [200] * 27


async def test_departures_of_a_flood_cost_the_others_nothing(start_router: StartRouter, workers: int) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, api_keys=KEYS, admission=ONE)
    clients = await fill(router, [by("flood")] * 21 + [by("small")] * 3 + [by("flood", user="after")])
    for client in clients[1:21]:
        client.leave()
    await router.stage(sent=1, queued=4)
    assert in_turn(await one_by_one(replica, turns, 4), ["small", "small", "after", "small"], workers)
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in clients[21:]] == [200] * 4


# Priority


async def test_the_most_urgent_go_first(start_router: StartRouter, workers: int) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, admission={**ONE, "priority_header": PRIORITY})
    values = ["high", None, "normal", "unheard-of", "high", "normal"]
    requests = [
        chat(user=str(number), stream=False, headers={"x-priority": value} if value else {})
        for number, value in enumerate(["high", *values])
    ]
    clients = await fill(router, requests)
    assert in_turn(await one_by_one(replica, turns, 6), ["1", "5", "3", "6", "2", "4"], workers)
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in clients] == [200] * 7


async def test_without_the_setting_the_header_means_nothing(start_router: StartRouter) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, admission=ONE)
    requests = [
        chat(user=str(number), stream=False, headers={"X-Priority": value})
        for number, value in enumerate(["normal", "normal", "high"])
    ]
    await fill(router, requests)
    assert await one_by_one(replica, turns, 2) == ["1", "2"]
    turns.put_nowait(None)


# A full queue


async def test_a_flood_that_fills_the_queue_is_shed_for_another_caller(start_router: StartRouter) -> None:
    replica, turns = turnstile()
    router = await start_router(replica, api_keys=KEYS, admission={**ONE, "max_queued": 4})
    flood = await fill(router, [by("flood", user=f"flood {number}") for number in range(5)])
    small = await router.begin(by("small"))

    shed = await flood.pop().answer()
    shed.refused(429, "queue_full")
    assert int(shed.head.get("retry-after") or 0) >= 1
    (await router.ask(by("flood"))).refused(429, "queue_full")
    assert (await metrics(router)).value("shed_total", reason="queue_full") == 2

    assert await one_by_one(replica, turns, 4) == ["small", "flood 1", "flood 2", "flood 3"]
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in (*flood, small)] == [200] * 5


async def test_the_least_urgent_are_shed_for_the_more_urgent(start_router: StartRouter) -> None:
    replica, turns = turnstile()
    rules = {**ONE, "max_queued": 2, "priority_header": PRIORITY}
    router = await start_router(replica, admission=rules)
    idle = [chat(user=str(number), stream=False) for number in range(3)]
    clients = await fill(router, idle)
    urgent = await router.begin(chat(user="urgent", stream=False, headers={"X-Priority": "high"}))

    (await clients.pop().answer()).refused(429, "queue_full")
    assert await one_by_one(replica, turns, 2) == ["urgent", "1"]
    turns.put_nowait(None)
    assert [(await client.answer()).status for client in (*clients, urgent)] == [200] * 3


async def test_an_overloaded_router_says_at_once_when_to_come_back(start_router: StartRouter) -> None:
    """H26"""
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(b"", gate, OK)), admission={**ONE, "max_queued": 20})
    clients = await fill(router, [chat(stream=False)] * 21)
    for number in range(1, 11):
        started = time.monotonic()
        answer = await router.ask(chat(stream=False))
        assert time.monotonic() - started < 0.25
        answer.refused(429, "queue_full")
        assert int(answer.head.get("retry-after") or 0) >= 1
        assert (await router.metrics()).value("shed_total", reason="queue_full") == number
    gate.set()
    assert [(await client.answer()).status for client in clients] == [200] * 21


# Nothing is lost


async def test_a_burst_of_impatient_clients_leaves_all_room_free(start_router: StartRouter) -> None:
    """H24"""
    slow = asyncio.Event()
    slow.set()

    async def script(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.5 if slow.is_set() else 0.01)
        await connection.send(OK)

    replica = FakeReplica(script)
    router = await start_router(replica, admission={"max_outstanding_per_replica": 5})
    chance = random.Random(5)

    async def impatient() -> None:
        await asyncio.sleep(2 * chance.random())
        client = await router.begin(chat(stream=False))
        await asyncio.sleep(0.25)
        client.leave(chance.choice(("fin", "rst")))

    await asyncio.gather(*(impatient() for _ in range(300)))
    slow.clear()
    await router.settled()

    times = []

    async def timed() -> None:
        # A SYN that the kernel drops, as it may after thousands of connections, is repeated after a second.
        client = await router.connect()
        started = time.monotonic()
        assert (await client.ask(chat(stream=False))).status == 200
        times.append(time.monotonic() - started)
        client.leave()

    for _ in range(100):
        await timed()
    await asyncio.gather(*(timed() for _ in range(100)))
    assert sorted(times)[-3] < 0.5
    assert (await router.settled())["queued"] == 0


@pytest.mark.parametrize("seed", range(2))
async def test_any_sequence_of_endings_leaves_the_limit_as_it_was(
    start_router: StartRouter, seed: int
) -> None:
    """H25"""
    most = now = 0

    async def script(received: Received, connection: Connection) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            ending = json.loads(received.body)["user"]
            if ending == "error":
                await connection.send(sized(b"{}", status="500 Broken"))
            elif ending == "reset":
                await connection.send(SSE_HEAD + event("1"))
                connection.wire.reset()
            elif ending == "left":
                await connection.send(SSE_HEAD + event("1"))
                await connection.wire.gone(60)
            elif ending == "silent":
                await connection.wire.gone(60)
            else:
                await connection.send(SSE_HEAD + event("1") + LAST_CHUNK)
        finally:
            now -= 1

    endings = ["left", "reset", "error", "silent"] * 12
    random.Random(seed).shuffle(endings)
    router = await start_router(
        replica := FakeReplica(script),
        admission=ONE,
        timeouts={"response_head": 0.1},
        eject={"consecutive_failures": 1000},
    )
    for number, ending in enumerate(endings):
        first = await router.begin(chat(user=ending))
        await replica.received(2 * number + 1)
        second = await router.begin(chat(user="next"))
        if ending == "left":
            await first.wire.expect(event("1"))
            first.leave("rst" if number % 2 else "fin")
        answer = await second.answer(deadline=1.0)
        assert (answer.status, answer.ended) == (200, "clean")
    assert most == 1
    replica.script = reply(OK)
    assert (await router.ask(chat(stream=False))).status == 200
