"""Asking an address over real sockets."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from replicarouter.acceptance.door import Door, open_session
from replicarouter.acceptance.errors import NoAnswer, Refused
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SHORT_STREAM, SSE_HEAD, FakeReplica, event, reply, sized, stall

PATH = "/v1/chat/completions"


@asynccontextmanager
async def door_to(replica: FakeReplica, key: str = "") -> AsyncIterator[Door]:
    async with replica, open_session() as session:
        yield Door("one", str(replica.settings["url"]), session, time.monotonic, key=key)


async def test_a_reply_comes_with_its_headers_and_a_key_is_sent() -> None:
    replica = FakeReplica(reply(sized(b'{"a":1}', headers="X-Odd: yes\r\n")))
    async with door_to(replica, key="sk-1") as door:
        got = await door.post(PATH, b"{}")
    assert (got.status, got.document(), got.headers["x-odd"]) == (200, {"a": 1}, "yes")
    assert replica.requests[0].head.get("authorization") == "Bearer sk-1"


async def test_no_connection_is_used_twice() -> None:
    """An engine may close an idle one just as it is used again, and that would look like a fault."""
    replica = FakeReplica(reply(sized(b"{}")))
    async with door_to(replica) as door:
        for _ in range(3):
            await door.post(PATH, b"{}")
    assert len(replica.used_connections) == 3


async def test_a_whole_stream_has_no_faults() -> None:
    async with door_to(FakeReplica(reply(SHORT_STREAM))) as door:
        streamed = await door.stream(PATH, b"{}")
    assert [one.data for one in streamed.events] == [b'{"n":1}', b'{"n":2}', b"[DONE]"]
    assert streamed.faults == []
    assert streamed.asked_at < streamed.events[0].at <= streamed.ended_at


async def test_a_stream_that_is_cut_says_so() -> None:
    raw = SSE_HEAD + event('{"n":1}')
    async with door_to(FakeReplica(reply(raw, then="fin"))) as door:
        streamed = await door.stream(PATH, b"{}")
    assert streamed.faults == ["it was cut before its end"]
    assert len(streamed.events) == 1


async def test_another_content_type_is_a_fault() -> None:
    raw = SSE_HEAD.replace(b"text/event-stream", b"text/plain") + event("[DONE]") + LAST_CHUNK
    async with door_to(FakeReplica(reply(raw))) as door:
        streamed = await door.stream(PATH, b"{}")
    assert streamed.faults == ["its content type is not text/event-stream"]


async def test_a_refused_stream_keeps_its_reason() -> None:
    raw = sized(b'{"detail":"busy"}', status="503 Busy")
    async with door_to(FakeReplica(reply(raw))) as door:
        streamed = await door.stream(PATH, b"{}")
        with pytest.raises(Refused, match="busy"):
            streamed.reply.must_be_ok()
        with pytest.raises(Refused, match="busy"):
            async with door.streaming(PATH, b"{}"):
                pass


async def test_leaving_a_stream_closes_its_connection() -> None:
    replica = FakeReplica(stall(SSE_HEAD + event('{"n":1}')))
    async with door_to(replica) as door:
        async with door.streaming(PATH, b"{}") as (_, events):
            async for one in events:
                assert one.data == b'{"n":1}'
                break
        await replica.requests[0].aborted()


async def test_who_does_not_answer_is_told() -> None:
    async with open_session() as session:
        door = Door("nobody", "http://127.0.0.1:1", session, time.monotonic)
        for asking in (door.get("/health"), door.post(PATH, b"{}"), door.stream(PATH, b"{}")):
            with pytest.raises(NoAnswer, match="nobody: refuses connections"):
                await asking


async def test_a_reset_is_told() -> None:
    async with door_to(FakeReplica(reply(b"HTTP/1.1 200 OK\r\n", then="rst"))) as door:
        with pytest.raises(NoAnswer, match="the connection fails"):
            await door.post(PATH, b"{}")
