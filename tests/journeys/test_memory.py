"""What stays in memory of large events, large fields, bombs and readers that stopped: nearly nothing."""

import gzip
import re
from pathlib import Path

import pytest

from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually
from tests.journeys.test_backpressure import PIECE, at_rest, piece, stalled

MB = 1_000_000


def resident(router: Served) -> int:
    """Bytes that the router's process holds in memory."""
    status = Path(f"/proc/{router.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+([0-9]+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


async def falls_to(router: Served, most: int) -> None:
    await eventually(
        lambda: resident(router) <= most,
        f"memory falls to {most / MB:.0f} MB, {resident(router) / MB:.0f} now",
    )


async def test_memory_of_large_events_is_given_back(serve: Serve) -> None:
    """H02: lines of up to eight million bytes pass, and leave no more than 20 MB behind."""
    replica = FakeReplica()
    router = await serve(replica)
    await router.until_ready(1)
    assert (await router.ask(chat())).status == 200
    before = resident(router)
    for length in (120_000, 530_000, 1_100_000, 8_000_000):
        stream = event("a") + event("x" * length) + event("[DONE]") + LAST_CHUNK

        async def script(_: Received, connection: Connection, stream: bytes = stream) -> None:
            await connection.send(SSE_HEAD + stream)

        replica.script = script
        answer = await router.ask(chat())
        assert answer.ended == "clean"
        assert answer.body.raw == stream
    await falls_to(router, before + 20 * MB)


async def test_memory_does_not_grow_behind_a_reader_that_stopped(serve: Serve) -> None:
    """H31: of 200 MB for a client that reads nothing the router holds next to nothing."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(200 * MB // PIECE):
            await connection.send(piece(number))

    replica = FakeReplica(script)
    router = await serve(replica)
    await router.until_ready(1)
    before = resident(router)
    client = await stalled(router, chat())
    assert await at_rest(replica.used_connections[0].wire) < 16 * MB
    assert resident(router) < before + 32 * MB
    client.leave("rst")
    await replica.requests[0].aborted()
    await router.settled()


async def test_many_readers_that_stopped_cost_little_and_disturb_nobody(serve: Serve) -> None:
    """H31: each holds less than a megabyte; another client is served meanwhile."""

    async def script(received: Received, connection: Connection) -> None:
        if b"stalls" not in received.body:
            await connection.send(SSE_HEAD + event("1") + LAST_CHUNK)
            return
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(piece(0))

    replica = FakeReplica(script)
    router = await serve(replica)
    await router.until_ready(1)
    before = resident(router)
    clients = [await stalled(router, chat(user="stalls")) for _ in range(60)]
    for connection in replica.used_connections:
        await eventually(lambda: connection.wire.write_blocked, "the replica is blocked")  # noqa: B023
    assert (await router.ask(chat())).body.raw == event("1") + LAST_CHUNK
    assert resident(router) < before + len(clients) * MB
    for client in clients:
        client.leave("rst")
    for received in list(replica.requests):
        if b"stalls" in received.body:
            await received.aborted()


@pytest.mark.parametrize("size", [50, 2000], ids=["50-MB", "2-GB"])
async def test_bomb_does_not_go_off(serve: Serve, size: int) -> None:
    """H33: zeros in compressed form, in the body of a request."""
    packed = gzip.compress(bytes(MB), mtime=0) * size
    router = await serve(FakeReplica())
    await router.until_ready(1)
    before = resident(router)
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        answer = await router.ask(request("POST", path, packed, {"Content-Encoding": "gzip"}))
        assert answer.status in {200, 413, 415}
    assert resident(router) < before + 50 * MB
    assert (await router.ask(chat())).status == 200


async def test_overlong_field_is_not_collected(serve: Serve) -> None:
    """H36: a field of a megabyte is refused, again and again without growth."""
    router = await serve(FakeReplica())
    await router.until_ready(1)
    raw = chat(headers={"X-Large": "x" * MB})
    before = 0
    for number in range(60):
        client = await router.connect()
        client.wire.transport.write(raw)
        (await client.answer()).refused(431, "headers_too_large")
        await client.closed()
        if number == 10:
            before = resident(router)
    await falls_to(router, before + 8 * MB)
