"""What is not well-formed HTTP never passes for an answer, nor does its connection serve anybody else."""

import asyncio

import pytest

from tests.fakes.client import chat
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.running import StartRouter

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
    "chunked-by-an-old-replica": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
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
    "bare-line-feed-in-trailers": b"0\r\nX-A: a\n\nHTTP/1.1 200 OK\r\n\r\n",
    "nul-in-trailers": b"0\r\nX-A: a\x00\r\n\r\n",
    "no-colon-in-trailers": b"0\r\nHTTP/1.1 200 OK\r\n\r\n",
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
