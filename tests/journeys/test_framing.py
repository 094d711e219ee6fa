"""Response framing: what a replica sends arrives as it was framed, and connections are kept where that
is safe."""

import asyncio

import pytest

from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, reply, sized
from tests.fakes.running import StartRouter
from tests.fakes.wire import Ending

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

FRAMINGS = {
    "chunked": CHUNKED + chunk(b"hello") + chunk(b" world") + LAST_CHUNK,
    "chunked-empty": CHUNKED + LAST_CHUNK,
    "chunk-extension": CHUNKED + b'5;name=value;q="a;b"\r\nhello\r\n0;last\r\n\r\n',
    "trailers": CHUNKED + chunk(b"hello") + b"0\r\nX-Checksum: 1\r\nServer-Timing: a\r\n\r\n",
    "leading-zeros": CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n",
    "upper-case-size": CHUNKED + b"1A\r\n" + b"x" * 26 + b"\r\n1a\r\n" + b"y" * 26 + b"\r\n0\r\n\r\n",
    "line-ends-inside": CHUNKED + chunk(b"0\r\n\r\n") + chunk(b"\r\n") + LAST_CHUNK,
    "upper-case-coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + chunk(b"x") + LAST_CHUNK,
    "length": sized(b'{"a":1}'),
    "length-zero": sized(b""),
    "length-large": sized(b"z" * 300_000),
    "no-content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not-modified": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 5\r\n\r\n',
    "no-reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
    "spaces-around-value": b"HTTP/1.1 200 OK\r\nContent-Length:  \t2 \t\r\n\r\n{}",
    "latin-1-in-a-field": b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: 2\r\n\r\n{}",
}

DELIVERIES = {"at-once": 1 << 30, "byte-by-byte": 1, "in-sevens": 7}


def body_of(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("size", DELIVERIES.values(), ids=DELIVERIES)
@pytest.mark.parametrize("raw", FRAMINGS.values(), ids=FRAMINGS)
async def test_framing_passes_verbatim_and_the_connection_serves_on(
    start_router: StartRouter, raw: bytes, size: int
) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(raw, max(size, len(raw) // 200))

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(chat())
        assert answer.status == int(raw[9:12])
        assert answer.body.raw == body_of(raw)
        assert answer.ended == "clean"
    assert client.wire.unread == b""
    assert len(replica.used_connections) == 1
    assert (await router.settled()).finished == {"ok": 2}


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\n",
    ],
    ids=["silent", "said", "http-1.0"],
)
@pytest.mark.parametrize("body", [b"", b"data: 1\n\ndata: [DONE]\n\n", b"x" * 200_000])
async def test_body_that_ends_by_closing_is_passed_on_the_same_way(
    start_router: StartRouter, head: bytes, body: bytes
) -> None:
    router = await start_router(FakeReplica(reply(head + body, then="fin")))
    answer = await router.ask(chat())
    assert answer.status == 200
    assert answer.head.framing == []
    assert answer.head.get("connection") == "close"
    assert answer.body.framing == "close"
    assert answer.body.raw == body
    assert answer.ended == "clean"
    assert (await router.settled()).finished == {"ok": 1}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    "raw",
    [sized(b"x" * 100)[:-1], sized(b"x" * 100_000)[:-50_000]],
    ids=["one-byte-short", "half"],
)
async def test_short_body_is_not_passed_for_a_whole_one(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    proceed = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(raw)
        await proceed.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat(stream=False))
    await client.wire.expect(body_of(raw))
    proceed.set()
    answer = await client.answer()
    assert answer.ended == "dirty"
    assert answer.body.raw == body_of(raw)
    assert (await router.settled()).finished == {"replica_disconnected": 1}


async def test_close_delimited_body_that_is_reset_is_not_passed_for_a_whole_one(
    start_router: StartRouter,
) -> None:
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
        await cut.wait()
        connection.wire.reset()

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat())
    await client.wire.expect(b"\r\n\r\n{")
    cut.set()
    answer = await client.answer()
    assert answer.body.raw == b"{"
    assert answer.ended == "dirty"
    assert (await router.settled()).finished == {"replica_disconnected": 1}


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\nX-Step: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
    ],
    ids=["100", "102", "103", "100-103"],
)
@pytest.mark.parametrize("size", DELIVERIES.values(), ids=DELIVERIES)
async def test_informational_heads_do_not_hide_the_answer(
    start_router: StartRouter, interim: bytes, size: int
) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(interim + OK, size)

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(chat(stream=False))
        assert answer.status == 200
        assert answer.body.raw == body_of(OK)
    assert len(replica.used_connections) == 1


@pytest.mark.parametrize("surplus", [b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nINJECTED!"])
@pytest.mark.parametrize("raw", [OK, FRAMINGS["chunked"], FRAMINGS["no-content"]])
async def test_bytes_after_an_answer_reach_nobody(
    start_router: StartRouter, raw: bytes, surplus: bytes
) -> None:
    async def script(received: Received, connection: Connection) -> None:
        await connection.send(raw + surplus if b"first" in received.body else raw)

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await router.connect()
    first = await client.ask(chat(user="first"))
    second = await client.ask(chat(user="second"))
    assert first.body.raw == second.body.raw == body_of(raw)
    assert client.wire.unread == b""
    assert len(replica.used_connections) == 2


@pytest.mark.parametrize("raw", [*FRAMINGS.values(), SSE_HEAD + event("1") + LAST_CHUNK])
async def test_old_client_gets_an_unchunked_closed_answer(start_router: StartRouter, raw: bytes) -> None:
    router = await start_router(FakeReplica(reply(raw)))
    modern = await router.ask(chat())
    client = await router.begin(chat().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    answer = await client.answer()
    await client.gone()
    assert answer.status == modern.status
    assert answer.head.get("transfer-encoding") is None
    assert answer.head.get("trailer") is None
    if answer.status != 304:
        assert answer.body.raw == modern.body.entity
    assert answer.ended == "clean"


async def test_old_client_gets_a_chunk_as_it_comes(start_router: StartRouter) -> None:
    """A chunk may be the whole of a long answer: it must neither be held up nor piled up."""
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(CHUNKED + b"%x\r\n" % 2_000_000 + b"first half" + b"x" * 999_990)
        await gate.wait()
        await connection.send(b"y" * 1_000_000 + b"\r\n" + LAST_CHUNK)

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    await client.wire.expect(b"first half")
    gate.set()
    answer = await client.answer()
    assert answer.body.raw == b"first half" + b"x" * 999_990 + b"y" * 1_000_000
    assert answer.ended == "clean"


async def test_old_client_gets_a_dirty_end_when_the_stream_is_cut(start_router: StartRouter) -> None:
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event("1"))
        await cut.wait()
        connection.wire.close()

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    await client.wire.expect(b"data: 1\n\n")
    cut.set()
    answer = await client.answer()
    assert answer.body.raw.startswith(b"data: 1\n\n")
    # Without chunks an ordinary end would say that all is there.
    assert answer.ended == "dirty" or b'"error"' in answer.body.raw
    assert (await router.settled()).finished == {"replica_disconnected": 1}


async def test_client_that_asks_to_close_is_closed(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    client = await router.begin(chat(headers={"Connection": "close"}))
    answer = await client.answer()
    assert answer.status == 200
    assert answer.head.get("connection") == "close"
    assert await client.gone() == "fin"


async def test_two_requests_share_both_connections(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        assert (await client.ask(chat())).status == 200
    assert [received.connection.number for received in replica.requests] == [
        replica.requests[0].connection.number
    ] * 2
    ledger = await router.settled()
    assert ledger["connector"]["idle"] == 1


@pytest.mark.parametrize("count", [2, 5, 300])
async def test_pipelined_requests_are_answered_in_order(start_router: StartRouter, count: int) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b'"user": "0"' in received.body:
            await gate.wait()
        await connection.send(sized(received.body))

    router = await start_router(FakeReplica(script), FakeReplica(script))
    bodies = [chat(user=str(number)) for number in range(count)]
    client = await router.begin(b"".join(bodies))
    await router.stage(sent=1)
    gate.set()
    for raw in bodies:
        assert (await client.answer()).body.raw == body_of(raw)


async def test_replica_that_says_close_is_not_used_again(start_router: StartRouter) -> None:
    replica = FakeReplica(reply(sized(b"{}", headers="Connection: close\r\n"), then="fin"))
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(3):
        answer = await client.ask(chat())
        assert answer.body.raw == b"{}"
        assert answer.head.get("connection") != "close"
    assert len(replica.used_connections) == 3


async def test_head_method_is_not_relayed(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.begin(request("HEAD", "/v1/chat/completions"))
    head = await client.head()
    assert head.status == 405
    assert head.get("allow") == "POST"
    assert (await client.ask(chat())).status == 200
    assert len(replica.requests) == 1
