"""Answers of the router's own, and the ends of broken streams."""

import asyncio
import json
from typing import Any

import pytest

from replicarouter.protocol.answer import LocalAnswer
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.answers import write_answer
from tests.fakes.client import Answer, request
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, reply
from tests.proxy.conftest import StartFront
from tests.proxy.rig import Rig, a_rig

GET = request("GET", "/x")
CHAT = request("POST", "/v1/chat/completions", b"{}")
OLD = b"POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("close", [False, True])
async def test_an_answer_is_written_whole(start_front: StartFront, close: bool) -> None:
    async def handle(one: InboundRequest) -> bool:
        told = LocalAnswer(404, b"gone", "text/plain", [("X-Request-Id", "a")])
        assert write_answer(one.client, told, close=close, bare=False) == 4
        return not close

    front = await start_front(handle)
    client = await front.connect()
    got = await client.ask(GET)

    assert (got.status, got.body.entity, got.head.get("x-request-id")) == (404, b"gone", "a")
    assert got.head.get("content-type") == "text/plain"
    assert got.head.get("connection") == ("close" if close else None)


async def test_a_bare_answer_has_its_length_and_no_body(start_front: StartFront) -> None:
    async def handle(one: InboundRequest) -> bool:
        assert write_answer(one.client, LocalAnswer(200, b"body"), close=True, bare=True) == 0
        return False

    front = await start_front(handle)
    client = await front.connect()
    await client.send(request("HEAD", "/x"))

    assert (await client.wire.read_to_end()).endswith(b"Content-Length: 4\r\nConnection: close\r\n\r\n")


async def test_an_answer_to_nobody_is_nothing(start_front: StartFront) -> None:
    left = asyncio.Event()

    async def handle(one: InboundRequest) -> bool:
        client = one.client
        assert client.transport is not None
        client.transport.abort()
        assert write_answer(client, LocalAnswer(200, b"body"), close=True, bare=False) == 0
        left.set()
        return False

    front = await start_front(handle)
    client = await front.connect()
    await client.send(GET)
    await client.gone()
    assert left.is_set()


async def broken(rig: Rig, raw: bytes = CHAT) -> Answer:
    client = await rig.connect()
    return await client.ask(raw)


CLOSING_SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_stream_that_breaks_behind_an_event_gets_one_error_event(
    start_front: StartFront, how: Any
) -> None:
    async with FakeReplica(reply(SSE_HEAD + event("1"), then=how)) as fake, a_rig(fake, start_front) as rig:
        answer = await broken(rig)

    first, last = answer.body.chunks
    assert first == b"data: 1\n\n"
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert (error["code"], error["type"]) == ("replica_disconnected", "server_error")
    assert last.endswith(b"}\n\n")
    assert answer.ended == "dirty"
    assert b"[DONE]" not in answer.body.raw


async def test_the_messages_api_gets_its_own_error_event(start_front: StartFront) -> None:
    async with FakeReplica(reply(SSE_HEAD + event("1"), then="fin")) as fake, a_rig(fake, start_front) as rig:
        rig.messages_api = True
        answer = await broken(rig)

    assert answer.body.chunks[-1].startswith(b'event: error\ndata: {"type":"error"')


@pytest.mark.parametrize("cut", [b"", b"9\r\ndata: 2", b"8\r\ndata: 2\n\r\n"])
async def test_no_event_is_put_into_the_middle_of_another(start_front: StartFront, cut: bytes) -> None:
    script = reply(SSE_HEAD + event("1") + cut, then="fin")
    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        answer = await broken(rig)

    assert (b"error" in answer.body.raw) == (not cut)
    assert answer.ended == "dirty"


async def test_an_old_client_gets_the_event_without_a_chunk_around_it(start_front: StartFront) -> None:
    async with FakeReplica(reply(SSE_HEAD + event("1"), then="fin")) as fake, a_rig(fake, start_front) as rig:
        answer = await broken(rig, OLD)

    assert answer.body.raw.startswith(b'data: 1\n\ndata: {"error"')
    assert answer.body.raw.endswith(b"}\n\n")


async def test_a_stream_without_framing_that_is_reset_gets_the_event_too(start_front: StartFront) -> None:
    raw = CLOSING_SSE + b"data: 1\n\n"
    async with FakeReplica(reply(raw, then="rst")) as fake, a_rig(fake, start_front) as rig:
        answer = await broken(rig)

    assert answer.body.raw.startswith(b"data: 1\n\n")
    assert b'"replica_disconnected"' in answer.body.raw


async def test_the_end_of_an_event_is_seen_whatever_its_line_ends(start_front: StartFront) -> None:
    raw = CLOSING_SSE + b"data: 1\r\n\r\n"
    async with FakeReplica(reply(raw, then="rst")) as fake, a_rig(fake, start_front) as rig:
        answer = await broken(rig)

    assert b'"replica_disconnected"' in answer.body.raw


async def test_a_cut_body_without_framing_does_not_look_whole(start_front: StartFront) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhal"
    async with FakeReplica(reply(raw, then="rst")) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        assert await client.gone() == "rst"
        assert rig.error is not None
