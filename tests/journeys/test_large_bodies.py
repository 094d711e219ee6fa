"""Large bodies: as sent, bounded in memory over all requests, given back when they have been delivered."""

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.client import Client, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, silence
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually

PATH = "/v1/chat/completions"
FORM = "/v1/audio/transcriptions"
MEGABYTE = 1_000_000
READS = "prefix-hash"
"""A policy that goes by what a body says, so that it is received whole."""


def padded(size: int) -> bytes:
    """A chat body of exactly `size` bytes."""
    return chat_body(pad="x" * (size - len(chat_body(pad=""))))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_sixty_megabytes_arrive_as_sent(start_router: StartRouter, chunked: bool) -> None:
    """H29"""
    replica = FakeReplica()
    router = await start_router(replica)
    body = padded(60 * MEGABYTE)
    answer = await router.ask(request("POST", PATH, body, chunked=chunked), deadline=30)
    assert answer.status == 200
    assert replica.requests[0].body == body


@pytest.mark.parametrize("pools", [1, 2])
async def test_large_body_is_routed_by_what_it_says(start_router: StartRouter, pools: int) -> None:
    replicas = [FakeReplica(models=[f"m{number + 1}"]) for number in range(pools)]
    router = await start_router(*replicas)
    messages = [
        {"role": "user", "content": f'message {number} with "model": "m1"'} for number in range(30_000)
    ]
    model = f"m{pools}"
    body = chat_body(model="nope", more=messages)[:-1] + f', "model" : "{model}" }}'.encode()
    assert (await router.ask(request("POST", PATH, body))).status == 200
    assert replicas[-1].requests[0].body == body
    wrong = chat_body(model="nope", more=messages)
    (await router.ask(request("POST", PATH, wrong))).refused(404, "model_not_found")


@pytest.mark.parametrize("end", [b"", b"]", b"}}", b'"}'])
async def test_large_body_that_is_no_json_is_refused(start_router: StartRouter, end: bytes) -> None:
    router = await start_router(FakeReplica(), policy=READS)
    body = padded(2 * MEGABYTE)[:-1] + end
    (await router.ask(request("POST", PATH, body))).refused(400, "invalid_request")


# The bound that all share


async def all_free(router: RunningRouter, most: int) -> None:
    """Assert that nothing is counted as held any more: a body of all that may be held passes."""
    await router.settled()
    assert (await router.ask(request("POST", PATH, padded(most)))).status == 200
    await router.settled()


def hold(router: RunningRouter, size: int) -> "asyncio.Future[Client]":
    """Declare a body of this size, and send a part of it."""
    head = request("POST", PATH, headers={"Content-Length": str(size), "Content-Type": "application/json"})
    return asyncio.ensure_future(router.begin(head + b'{"model":"m1",'))


async def test_more_than_may_be_held_is_refused_and_says_why(start_router: StartRouter) -> None:
    most = 2 * MEGABYTE
    router = await start_router(FakeReplica(), max_buffered_bytes=most, policy=READS)
    first = await hold(router, most - 1000)
    await router.stage(receiving=1)
    second = await hold(router, 2000)
    answer = await second.answer()
    error = answer.refused(503, "overloaded")
    assert "max_buffered_bytes" in error["message"]
    assert answer.head.get("retry-after") is not None
    assert (await router.ask(chat())).status == 200
    first.leave()
    await all_free(router, most)
    assert (await router.metrics()).value("shed_total", reason="overloaded") == 1


async def test_chunked_body_is_refused_when_it_grows_over_what_may_be_held(start_router: StartRouter) -> None:
    most = MEGABYTE
    router = await start_router(FakeReplica(), max_buffered_bytes=most, policy=READS)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    while not client.wire.over and b"\r\n\r\n" not in client.wire.unread:
        await client.send(chunk(b"x" * 50_000))
        await asyncio.sleep(0)
    (await client.answer()).refused(503, "overloaded")
    await all_free(router, most)


async def test_body_is_held_until_its_answer_begins(start_router: StartRouter) -> None:
    most = MEGABYTE
    gate, end = asyncio.Event(), asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await gate.wait()
        await connection.send(SSE_HEAD + event("1"))
        await end.wait()
        await connection.send(LAST_CHUNK)

    router = await start_router(FakeReplica(script), max_buffered_bytes=most, policy=READS)
    client = await router.begin(request("POST", PATH, padded(most - 1000)))
    await router.stage(sent=1)
    (await router.ask(request("POST", PATH, padded(2000)))).refused(503, "overloaded")
    gate.set()
    await client.wire.expect(b"data: 1")
    other = await router.begin(request("POST", PATH, padded(most)))
    await other.wire.expect(b"data: 1")
    end.set()


async def test_nothing_stays_counted_however_requests_end(start_router: StartRouter) -> None:
    """Clients that leave at any moment, refusals, dead replicas, timeouts: all give back what they held."""
    most = 3 * MEGABYTE
    dying = FakeReplica(silence)
    router = await start_router(
        dying, max_buffered_bytes=most, timeouts={"client_body": 0.3, "response_head": 0.3}
    )
    chance = random.Random(7)

    def some() -> Iterator[bytes]:
        for number in range(60):
            size = chance.choice([100, 40_000, 300_000])
            chunked = number % 2 == 0
            yield request("POST", PATH, padded(size), chunked=chunked)
            yield request("POST", FORM, b"--b\r\n" + b"x" * size, chunked=chunked)
            yield request("POST", PATH, b"{bad" + b"x" * size)

    async def end(raw: bytes) -> None:
        begun = raw.index(b"\r\n\r\n") + 4
        client = await router.begin(raw[: chance.choice([len(raw), chance.randrange(begun, len(raw))])])
        if chance.random() < 0.7:
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.1]))
        else:
            await client.answer()
        client.leave(chance.choice(["fin", "rst"]))

    requests = list(some())
    for start in range(0, len(requests), 30):
        await asyncio.gather(*(end(raw) for raw in requests[start : start + 30]))
    dying.script = held(OK, asyncio.Event())
    await all_free(router, most)


async def test_uploads_are_not_held(start_router: StartRouter) -> None:
    most = MEGABYTE
    replica = FakeReplica()
    router = await start_router(replica, max_buffered_bytes=most)
    body = (
        b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n" + bytes(5 * MEGABYTE) + b"\r\n--b--\r\n"
    )
    answers = await router.ask_each([request("POST", FORM, body)] * 4)
    assert [answer.status for answer in answers] == [200] * 4
    assert all(received.body == body for received in replica.requests)
    await all_free(router, most)


# What the system gets back


def resident(router: Served) -> tuple[int, int]:
    """Megabytes of memory that the process has now, and has had at most."""
    lines = Path(f"/proc/{router.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) // 1000, int(fields["VmHWM"].split()[0]) // 1000


def has_at_most(router: Served, megabytes: float) -> bool:
    return resident(router)[0] < megabytes


async def test_memory_of_large_bodies_is_given_back_while_their_answers_run(serve: Serve) -> None:
    """H30, smaller: 10 bodies of 12 MB at once, then of 6 MB, which a C library may like to keep."""
    count = 10
    opened, end = asyncio.Event(), asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        received.body = received.raw_body = b""
        await opened.wait()
        await connection.send(SSE_HEAD + event("1"))
        await end.wait()
        await connection.send(LAST_CHUNK)

    replica = FakeReplica(script)
    router = await serve(replica)

    async def ready() -> bool:
        return (await router.get("/ready")).status == 200

    await eventually(ready, "the replica is ready")
    before, _ = resident(router)
    for size in (12, 6):
        raw = request("POST", PATH, padded(size * MEGABYTE))
        clients = [await router.connect() for _ in range(count)]
        await asyncio.gather(*(client.send(raw) for client in clients))
        await router.stage(sent=count)
        assert resident(router)[0] - before > count * size * 0.8, (
            "the bodies are held until they are answered"
        )
        opened.set()
        for client in clients:
            await client.wire.expect(b"data: 1")
        few = before + count * size / 2
        await eventually(partial(has_at_most, router, few), "they are given back")
        end.set()
        for client in clients:
            await client.wire.expect(LAST_CHUNK)
            client.leave()
        await router.settled()
        opened.clear()
        end.clear()
    assert resident(router)[1] - before < 2 * count * 12 + 100
