"""A body on its way to the client: every byte, no more, and no connection used again that should not be."""

import asyncio
from typing import Any

import pytest

from replicarouter.errors import BadReplicaResponse, ReplicaDisconnected
from tests.fakes.client import chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import (
    OK,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    held,
    reply,
    sized,
)
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront
from tests.proxy.rig import a_rig

CHAT = request("POST", "/v1/chat/completions", b"{}")
OLD = b"POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
TRICKY = b"1;a=b\r\nx\r\n" + chunk(b"\r\n0\r\n\r\n") + b"0;last\r\nX-Sum: 1\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
async def test_a_chunked_body_crosses_byte_for_byte_however_it_is_cut(
    start_front: StartFront, size: int
) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(CHUNKED_HEAD + TRICKY, size)

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(CHAT)
        assert (answer.body.raw, answer.ended) == (TRICKY, "clean")
        assert rig.exchange.bytes_out == len(TRICKY)


BODIES = {
    "a length": sized(b"x" * 100),
    "no bytes": sized(b""),
    "chunks": CHUNKED_HEAD + TRICKY,
    "no body": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.mark.parametrize("name", BODIES)
async def test_both_connections_are_used_again_behind_a_whole_answer(
    start_front: StartFront, name: str
) -> None:
    async with FakeReplica(reply(BODIES[name])) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        for _ in range(3):
            assert (await client.ask(CHAT)).ended == "clean"
        assert rig.connections == (1, 0)
        assert len(fake.used_connections) == 1


SPOILED = {
    "more bytes than declared": sized(b"x") + b"y",
    "bytes behind the last chunk": CHUNKED_HEAD + TRICKY + b"HTTP/1.1 200 OK\r\n\r\n",
    "a body where none may be": b"HTTP/1.1 204 No Content\r\n\r\nx",
    "a replica that closes": sized(b"x", headers="Connection: close\r\n"),
    "an old replica": b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
}


@pytest.mark.parametrize("name", SPOILED)
async def test_a_spoiled_connection_is_not_used_again(start_front: StartFront, name: str) -> None:
    async with FakeReplica(reply(SPOILED[name])) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        for _ in range(2):
            assert (await client.ask(CHAT)).ended == "clean"
        assert len(fake.used_connections) == 2


async def test_a_bodiless_answer_that_declares_a_body_spoils_its_connection(start_front: StartFront) -> None:
    raw = b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with FakeReplica(reply(raw)) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        for _ in range(2):
            await client.ask(CHAT)
        assert len(fake.used_connections) == 2


BROKEN = {
    "a size that is none": CHUNKED_HEAD + b"5\r\nhello\r\nzz\r\n",
    "data longer than its size": CHUNKED_HEAD + b"5\r\nhello!\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_framing_ends_the_answer(start_front: StartFront, name: str) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(CHUNKED_HEAD + chunk(b"first"))
        await asyncio.sleep(0.02)
        await connection.send(BROKEN[name].removeprefix(CHUNKED_HEAD))

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(CHAT)
        assert answer.ended == "dirty"
        assert type(rig.error) is BadReplicaResponse
        await fake.requests[0].aborted()


async def test_framing_that_is_broken_from_the_start_is_no_answer_yet(start_front: StartFront) -> None:
    async with FakeReplica(reply(CHUNKED_HEAD + b"zz\r\n")) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await eventually(lambda: rig.error is not None, "the attempt fails")
        relay = rig.callers[0].relay
        assert type(rig.error) is BadReplicaResponse
        assert relay is not None
        assert not relay.committed


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    "raw", [sized(b"hello")[:-1], CHUNKED_HEAD + b"5\r\nhel", CHUNKED_HEAD + chunk(b"hello") + b"0\r\n"]
)
async def test_an_answer_that_breaks_off_is_never_taken_for_whole(
    start_front: StartFront, raw: bytes, how: Any
) -> None:
    async with FakeReplica(reply(raw, then=how)) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(CHAT)
        assert answer.ended == "dirty"
        assert type(rig.error) is ReplicaDisconnected


# Clients that speak HTTP/1.0


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_an_old_client_gets_the_content_without_its_framing(start_front: StartFront, size: int) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(CHUNKED_HEAD + TRICKY, size)

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(OLD)

    assert answer.body.entity == b"x\r\n0\r\n\r\n"
    assert answer.head.framing == []
    assert (answer.head.get("connection"), answer.ended) == ("close", "clean")


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_an_old_client_can_tell_a_cut_from_an_end(start_front: StartFront, how: Any) -> None:
    raw = CHUNKED_HEAD + chunk(b"hello") + b"5\r\nhel"
    async with FakeReplica(reply(raw, then=how)) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(OLD)
        assert rig.error is not None

    assert answer.ended == "dirty"


# Back-pressure


async def test_a_client_that_does_not_read_holds_up_its_replica_and_no_byte_is_lost(
    start_front: StartFront,
) -> None:
    size = 32 << 20
    sent = 0

    async def script(_: Received, connection: Connection) -> None:
        nonlocal sent
        await connection.send(sized(b"x" * size)[:-size])
        while sent < size:
            await connection.send(b"x" * 65536)
            sent += 65536

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect(receive_buffer=65536)
        client.wire.pause()
        await client.send(CHAT)
        await eventually(lambda: (relay := rig.callers and rig.callers[0].relay) and relay.held, "it is held")
        connection = rig.callers[0].connection
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < 1 << 20
        assert sent < size
        client.wire.resume()
        answer = await client.answer()
        assert len(answer.body.entity) == size
        assert rig.connections == (1, 0)


async def test_a_slow_client_does_not_hold_up_another(start_front: StartFront) -> None:
    async def script(received: Received, connection: Connection) -> None:
        if received.connection.number == 1:
            await connection.send(SSE_HEAD)
            while True:
                await connection.send(event("x" * 60_000))
        await connection.send(OK)

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        slow = await rig.connect(receive_buffer=65536)
        slow.wire.pause()
        await slow.send(CHAT)
        await eventually(lambda: (relay := rig.callers and rig.callers[0].relay) and relay.held, "it is held")
        quick = await rig.connect()
        assert (await quick.ask(CHAT)).status == 200


# Where an event of our own could go


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (event("1"), True),
        (b"", True),
        (b"5\r\ndata:", False),
        (chunk(b"data: 1\n"), False),
        (event("1") + b"5", False),
        (event("1") + LAST_CHUNK[:3], False),
    ],
)
async def test_an_event_of_our_own_fits_behind_whole_events_and_chunks(
    start_front: StartFront, body: bytes, expected: bool
) -> None:
    async with FakeReplica(held(SSE_HEAD + body, asyncio.Event())) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(request("POST", "/v1/chat/completions", chat_body()))
        await client.wire.expect(b"\r\n\r\n" + body)
        relay = rig.callers[0].relay
        assert relay is not None
        assert relay.at_event_boundary is expected


@pytest.mark.parametrize(
    "head",
    [
        SSE_HEAD.replace(b"text/event-stream", b"application/json"),
        SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
    ],
)
async def test_no_event_fits_into_what_is_no_plain_event_stream(start_front: StartFront, head: bytes) -> None:
    async with FakeReplica(held(head + event("1"), asyncio.Event())) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await client.wire.expect(b"data: 1")
        relay = rig.callers[0].relay
        assert relay is not None
        assert not relay.at_event_boundary
