"""Response framing: what a replica sends arrives as it was framed, and what is not well-formed never
passes for an answer, nor does its connection serve anybody else."""

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


OK_LINE = b"HTTP/1.1 200 OK\r\n"

MALFORMED = {
    "length-and-chunked": OK_LINE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked-and-length": OK_LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two-lengths": OK_LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "length-list": OK_LINE + b"Content-Length: 2, 3\r\n\r\n{} ",
    "negative-length": OK_LINE + b"Content-Length: -2\r\n\r\n{}",
    "signed-length": OK_LINE + b"Content-Length: +2\r\n\r\n{}",
    "hex-length": OK_LINE + b"Content-Length: 0x2\r\n\r\n{}",
    "spaced-length": OK_LINE + b"Content-Length: 1 2\r\n\r\n{}",
    "empty-length": OK_LINE + b"Content-Length:\r\n\r\n{}",
    "underscored-length": OK_LINE + b"Content-Length: 1_0\r\n\r\n{}",
    "foreign-digits": OK_LINE + "Content-Length: ٢\r\n\r\n{}".encode(),
    "gzip-chunked": OK_LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked-gzip": OK_LINE + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "xchunked": OK_LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": OK_LINE + b"Transfer-Encoding: identity\r\n\r\n{}",
    "chunked-twice": OK_LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded-field": OK_LINE + b"X-A: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "folded-by-tab": OK_LINE + b"X-A: a\r\n\tb\r\nContent-Length: 2\r\n\r\n{}",
    "bare-line-feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "one-bare-line-feed": OK_LINE + b"X-A: a\nX-B: b\r\nContent-Length: 2\r\n\r\n{}",
    "bare-carriage-return": OK_LINE + b"X-A: a\rX-B: b\r\nContent-Length: 2\r\n\r\n{}",
    "nul-in-a-field": OK_LINE + b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    "space-before-colon": OK_LINE + b"Content-Length : 2\r\n\r\n{}",
    "no-colon": OK_LINE + b"Content-Length 2\r\n\r\n{}",
    "no-name": OK_LINE + b": x\r\nContent-Length: 2\r\n\r\n{}",
    "space-in-name": OK_LINE + b"X A: x\r\nContent-Length: 2\r\n\r\n{}",
    "leading-space": OK_LINE + b" X-A: x\r\nContent-Length: 2\r\n\r\n{}",
    "short-status": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "long-status": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}",
    "worded-status": b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\n{}",
    "signed-status": b"HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\n{}",
    "status-below-100": b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-2": b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "other-protocol": b"ICY 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "lower-case-protocol": b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "no-protocol": b"200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "body-alone": b'{"object":"chat.completion"}\r\n\r\n',
    "blank-lines": b"\r\n\r\n\r\n",
    "tls-alert": b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n",
    "switching-protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "one-huge-field": OK_LINE + b"X-A: " + b"a" * 2_000_000,
    "endless-fields": OK_LINE + b"X-A: a\r\n" * 200_000,
    "endless-status-line": b"HTTP/1.1 200 " + b"O" * 2_000_000,
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_head_becomes_502_and_its_connection_is_dropped(
    start_router: StartRouter, raw: bytes
) -> None:
    async def script(received: Received, connection: Connection) -> None:
        await connection.send(raw if b"first" in received.body else OK)

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await router.connect()
    (await client.ask(chat(user="first"))).refused(502, "bad_replica_response")
    await replica.requests[0].aborted()
    assert (await client.ask(chat(user="second"))).status == 200
    assert len(replica.used_connections) == 2
    assert (await router.settled()).finished == {"bad_replica_response": 1, "ok": 1}


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("name", ["length-and-chunked", "bare-line-feeds", "nul-in-a-field", "folded-field"])
async def test_malformed_head_in_pieces_is_malformed_all_the_same(
    start_router: StartRouter, name: str, size: int
) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(MALFORMED[name], size)

    router = await start_router(FakeReplica(script))
    (await router.ask(chat())).refused(502, "bad_replica_response")


BAD_CHUNKS = {
    "no-number": b"zz\r\nhello\r\n",
    "negative": b"-5\r\nhello\r\n",
    "signed": b"+5\r\nhello\r\n",
    "prefixed": b"0x5\r\nhello\r\n",
    "underscored": b"0_5\r\nhello\r\n",
    "empty-size": b"\r\nhello\r\n",
    "too-long-data": b"5\r\nhelloX\r\n",
    "no-line-end": b"5\r\nhello5\r\nhello\r\n",
    "bare-line-feed": b"5\nhello\r\n",
    "bare-line-feed-after-data": b"5\r\nhello\n0\r\n\r\n",
    "huge-size": b"f" * 40 + b"\r\n",
    "endless-size": b"0" * 300_000,
    "endless-extension": b"5;" + b"x" * 300_000,
    "endless-trailers": b"0\r\n" + b"X-A: a\r\n" * 200_000,
    "length-in-words": b"five\r\nhello\r\n",
}


@pytest.mark.parametrize("together", [True, False], ids=["with-the-head", "later"])
@pytest.mark.parametrize("bad", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
async def test_malformed_chunk_never_ends_cleanly(
    start_router: StartRouter, bad: bytes, together: bool
) -> None:
    arrived = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"second" in received.body:
            await connection.send(OK)
            return
        await connection.send(SSE_HEAD + event("1") + (bad if together else b""))
        if not together:
            await arrived.wait()
            await connection.send(bad)

    replica = FakeReplica(script)
    router = await start_router(replica)
    client = await router.begin(chat())
    if not together:
        await client.wire.expect(event("1"))
        arrived.set()
    answer = await client.answer()
    if answer.status == 200:
        assert answer.ended == "dirty"
    else:
        answer.refused(502, "bad_replica_response")
    await replica.requests[0].aborted()
    assert (await router.ask(chat(user="second"))).status == 200
    assert len(replica.used_connections) == 2
    assert (await router.settled()).finished == {"bad_replica_response": 1, "ok": 1}


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


@pytest.mark.parametrize("count", [2, 5])
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
