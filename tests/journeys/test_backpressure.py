"""A reader that stops reading stops its replica, after a bounded amount, and loses no byte."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from tests.fakes.client import Client, chat
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event, held
from tests.fakes.running import Doors, StartRouter
from tests.fakes.wire import Wire, eventually

PIECE = 64 * 1024
PIECES = 1024
BOUND = 24 * 1024 * 1024
"""Bytes that two sockets on loopback and the router's share may hold; far below the whole answer."""


def piece(number: int) -> bytes:
    return chunk(b"%08d" % number + b"x" * (PIECE - 8))


def chunked_flood() -> tuple[bytes, list[bytes]]:
    return SSE_HEAD, [*map(piece, range(PIECES)), LAST_CHUNK]


def sized_flood() -> tuple[bytes, list[bytes]]:
    bodies = [b"%08d" % number + b"y" * (PIECE - 8) for number in range(PIECES)]
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (PIECE * PIECES), bodies


def closed_flood() -> tuple[bytes, list[bytes]]:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", sized_flood()[1]


def received_at_least(client: Client, count: int) -> bool:
    return client.wire.count_received >= count


async def at_rest(wire: Wire) -> int:
    """Wait until the peer of `wire` takes no more; how much it took in all."""
    seen = -1

    async def still() -> bool:
        nonlocal seen
        before, seen = seen, wire.count_written
        await asyncio.sleep(0.1)
        return wire.write_blocked and before == seen == wire.count_written

    await eventually(still, "the sender is blocked")
    return wire.count_written


async def stalled(router: Doors, raw: bytes) -> Client:
    """A client that reads the head of its answer and nothing more."""
    client = await router.connect(receive_buffer=PIECE)
    await client.send(raw)
    await client.wire.expect(b"\r\n\r\n")
    client.wire.pause()
    return client


@pytest.mark.parametrize("flood", [chunked_flood, sized_flood, closed_flood])
async def test_stalled_reader_blocks_the_replica_and_gets_every_byte_later(
    start_router: StartRouter, flood: Callable[[], tuple[bytes, list[bytes]]]
) -> None:
    head, pieces = flood()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(head)
        for part in pieces:
            await connection.send(part)
        if b"close" in head:
            connection.wire.close()

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await stalled(router, chat())
    assert await at_rest(replica.used_connections[0].wire) < BOUND
    (row,) = (await router.admin("/admin/requests")).json()["requests"]
    assert row["stage"] == "streaming"
    client.wire.resume()
    answer = await client.answer(deadline=20)
    assert answer.ended == "clean"
    assert answer.body.raw == b"".join(pieces)
    assert (await router.settled()).finished == {"ok": 1}


async def test_stalled_reader_does_not_hold_up_the_others(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"stalls" in received.body:
            head, pieces = chunked_flood()
            await connection.send(head)
            for part in pieces:
                await connection.send(part)
        else:
            await held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)(received, connection)

    replica = FakeReplica(script)
    router = await start_router(replica)
    stalling = [await stalled(router, chat(user="stalls")) for _ in range(5)]
    for connection in replica.used_connections:
        await at_rest(connection.wire)
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    gate.set()
    assert (await client.answer()).body.raw == event("1") + event("2") + LAST_CHUNK
    for stalled_client in stalling:
        stalled_client.wire.resume()
        stalled_client.leave("rst")
    await router.settled()


async def test_reader_that_takes_nothing_is_closed_in_time(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(piece(0))

    replica = FakeReplica(script)
    router = await start_router(replica, timeouts={"client_write": 0.3})
    await stalled(router, chat())
    await replica.requests[0].aborted()
    assert (await router.settled()).finished == {"client_gone": 1}


async def test_reader_that_is_only_slow_is_served(start_router: StartRouter) -> None:
    """Progress counts, not completeness: the whole takes longer than the limit."""
    head, pieces = chunked_flood()
    pieces = [*pieces[:256], LAST_CHUNK]

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(head)
        for part in pieces:
            await connection.send(part)

    router = await start_router(FakeReplica(script), timeouts={"client_write": 0.5})
    client = await stalled(router, chat())
    for wanted in range(24 * PIECE, 9 * 24 * PIECE, 24 * PIECE):
        client.wire.resume()
        # More than the operating system holds, so that the router sees the progress.
        await client.wire.until(partial(received_at_least, client, wanted), "some more bytes")
        client.wire.pause()
        await asyncio.sleep(0.15)
    client.wire.resume()
    answer = await client.answer(deadline=20)
    assert answer.ended == "clean"
    assert answer.body.raw == b"".join(pieces)


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_replica_that_dies_behind_a_stalled_reader_ends_dirty(
    start_router: StartRouter, how: str
) -> None:
    head, pieces = chunked_flood()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(head + b"".join(pieces[:8]))
        await cut.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    cut = asyncio.Event()
    router = await start_router(FakeReplica(script))
    client = await stalled(router, chat())
    cut.set()
    await asyncio.sleep(0)
    client.wire.resume()
    answer = await client.answer(deadline=20)
    assert answer.ended == "dirty"
    assert b"".join(pieces[:8]).startswith(answer.body.raw[: len(b"".join(pieces[:8]))])
    assert (await router.settled()).finished == {"replica_disconnected": 1}


async def test_client_that_sends_faster_than_its_answers_come_is_held_back(
    start_router: StartRouter,
) -> None:
    """Requests piled up on one connection wait in the operating system, not in memory."""
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(b"", gate, b"HTTP/1.1 204 No Content\r\n\r\n")))
    client = await router.connect()
    raw = chat(pad="x" * 100_000)
    for _ in range(200):
        client.wire.count_written += len(raw)
        client.wire.transport.write(raw)
    await router.stage(sent=1)
    await eventually(lambda: client.wire.write_blocked, "the client is blocked")
    left = client.wire.transport.get_write_buffer_size()
    assert left > 4 * 1024 * 1024
    gate.set()
    for _ in range(200):
        assert (await client.answer()).status == 204
