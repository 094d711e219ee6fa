"""Compressed bodies in both directions: what is compressed stays so, and says so."""

import asyncio
import gzip
import zlib

import pytest

from tests.fakes.client import Answer, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, sized
from tests.fakes.running import StartRouter

PATH = "/v1/chat/completions"
PLAIN = b'{"choices":[{"message":{"content":"' + "你好".encode() * 200 + b'"}}]}'
EVENTS = [b'data: {"n":%d}\n\n' % number for number in range(20)]


def decoded(answer: Answer) -> bytes:
    """The plain body, going by nothing but the fields of the answer."""
    entity = answer.body.entity
    for coding in reversed((answer.head.get("content-encoding") or "identity").split(",")):
        entity = gzip.decompress(entity) if coding.strip() == "gzip" else entity
    return entity


async def compressing(received: Received, connection: Connection) -> None:
    """Compress if that is accepted: JSON once or twice, an event stream event by event."""
    accepted = "gzip" in (received.head.get("accept-encoding") or "")
    if b"stream" in received.body and b'"stream": true' in received.body:
        packer = zlib.compressobj(wbits=31)
        await connection.send(
            SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") if accepted else SSE_HEAD
        )
        for event in EVENTS:
            packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
            await connection.send(chunk(packed if accepted else event))
        await connection.send((chunk(packer.flush()) if accepted else b"") + LAST_CHUNK)
    elif not accepted:
        await connection.send(sized(PLAIN))
    elif b"twice" in received.body:
        packed = gzip.compress(gzip.compress(PLAIN))
        await connection.send(sized(packed, headers="Content-Encoding: gzip, gzip\r\n"))
    else:
        await connection.send(sized(gzip.compress(PLAIN), headers="Content-Encoding: gzip\r\n"))


@pytest.mark.parametrize("user", ["once", "twice", "events"])
@pytest.mark.parametrize("wanted", ["gzip", "identity", None, "br, zstd"])
async def test_answer_can_be_decoded_by_its_own_fields(
    start_router: StartRouter, wanted: str | None, user: str
) -> None:
    """H32: the client gets what it asked for, and the fields say what it got."""
    replica = FakeReplica(compressing)
    router = await start_router(replica)
    headers = {"Accept-Encoding": wanted} if wanted else {}
    answer = await router.ask(chat(stream=user == "events", user=user, headers=headers))
    assert replica.requests[0].head.get("accept-encoding") == wanted
    assert (answer.head.get("content-encoding") is not None) == (wanted == "gzip")
    assert answer.ended == "clean"
    assert decoded(answer) == (b"".join(EVENTS) if user == "events" else PLAIN)


async def test_compressed_event_arrives_before_the_next_is_sent(start_router: StartRouter) -> None:
    """H32: compression by the engine does not make the router collect events."""
    taken: asyncio.Queue[None] = asyncio.Queue()

    async def script(_: Received, connection: Connection) -> None:
        packer = zlib.compressobj(wbits=31)
        await connection.send(SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
        for event in EVENTS:
            await connection.send(chunk(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)))
            await taken.get()
        await connection.send(chunk(packer.flush()) + LAST_CHUNK)

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat(headers={"Accept-Encoding": "gzip"}))
    await client.head()
    unpacker = zlib.decompressobj(wbits=31)
    for event in EVENTS:
        size = int(await client.wire.read_until(b"\r\n"), 16)
        packed = await client.wire.read_exactly(size + 2)
        assert unpacker.decompress(packed[:-2]) == event
        taken.put_nowait(None)


REQUESTS = {
    "gzip": ("gzip", gzip.compress(chat_body())),
    "GZIP": ("GZIP", gzip.compress(chat_body())),
    "deflate": ("deflate", zlib.compress(chat_body())),
    "two-members": ("gzip", gzip.compress(chat_body()[:20]) + gzip.compress(chat_body()[20:])),
    "truncated": ("gzip", gzip.compress(chat_body())[:-9]),
    "bomb": ("gzip", gzip.compress(b"\0" * 50_000_000)),
}


@pytest.mark.parametrize("pools", [1, 2])
@pytest.mark.parametrize(("coding", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_compressed_request_is_refused_or_passed_on_as_it_is(
    start_router: StartRouter, coding: str, body: bytes, pools: int
) -> None:
    """H33: the router never unpacks, so that no bomb goes off in it and header and body always agree."""
    replica = FakeReplica()
    others = [FakeReplica(models=["m2"]) for _ in range(pools - 1)]
    router = await start_router(replica, *others)
    client = await router.connect()
    answer = await client.ask(request("POST", PATH, body, {"Content-Encoding": coding}))
    if pools > 1 or answer.status != 200:
        answer.refused(415, "unsupported_encoding")
        assert replica.requests == []
    else:
        assert replica.requests[0].body == body
        assert replica.requests[0].head.get("content-encoding") == coding
    assert (await client.ask(chat())).body.raw == OK.partition(b"\r\n\r\n")[2]
