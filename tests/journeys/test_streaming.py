"""A stream arrives byte for byte and event by event, whatever is in it, and never gets an ending
that its replica did not send."""

import asyncio
import json
from typing import Any

import pytest

from tests.fakes.client import chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import (
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    Script,
    event,
    held,
    reply,
    sized,
)
from tests.fakes.running import StartRouter
from tests.fakes.wire import Ending

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
DONE = event("[DONE]")
EVENTS = 100
WIDE = 'data: {"choices":[{"index":0,"delta":{"content":"你好🌍—é"}}]}\n\ndata: [DONE]\n\n'.encode()


def in_pieces(raw: bytes, size: int) -> Script:
    """Answer with `raw`, `size` bytes a write."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(raw, size)

    return script


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_characters_cut_by_reads_stay_whole(start_router: StartRouter, size: int) -> None:
    stream = chunk(WIDE) + LAST_CHUNK
    router = await start_router(FakeReplica(in_pieces(SSE_HEAD + stream, size)))
    answer = await router.ask(chat())
    assert answer.body.raw == stream
    assert answer.body.entity == WIDE


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_characters_cut_by_chunks_stay_whole(start_router: StartRouter, size: int) -> None:
    chunks = [WIDE[start : start + size] for start in range(0, len(WIDE), size)]
    stream = b"".join(map(chunk, chunks)) + LAST_CHUNK
    router = await start_router(FakeReplica(reply(SSE_HEAD + stream)))
    answer = await router.ask(chat())
    assert answer.body.chunks == chunks
    assert answer.body.raw == stream


@pytest.mark.parametrize("length", [120_000, 530_000, 1_100_000, 8_000_000])
async def test_event_of_any_length_passes(start_router: StartRouter, length: int) -> None:
    stream = event("a") + event("x" * length) + DONE + LAST_CHUNK
    router = await start_router(FakeReplica(reply(SSE_HEAD + stream)))
    answer = await router.ask(chat())
    assert answer.ended == "clean"
    assert answer.body.raw == stream


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_comments_pings_and_odd_events_pass_unchanged(
    start_router: StartRouter, line_end: bytes
) -> None:
    lines = [
        b": ping\n",
        b": \n\n",
        b'id: 7\ndata: {"a":1}\n\n',
        b"retry: 3000\n\n",
        b'event: error\ndata: {"b":2}\n\n',
        b"data: line1\ndata: line2\n\n",
        b"data:nospace\n\n",
        b"event: never-heard-of\ndata:\n\n",
        b"\n\n\n",
        b"data: [DONE]\n\n",
        b": after the end\n\n",
    ]
    stream = b"".join(chunk(line.replace(b"\n", line_end)) for line in lines) + LAST_CHUNK
    router = await start_router(FakeReplica(reply(SSE_HEAD + stream)))
    assert (await router.ask(chat())).body.raw == stream


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_cut_stream_ends_with_an_error_event_and_no_ending(
    start_router: StartRouter, how: Ending, path: str
) -> None:
    events = [event('{"n":1}'), event('{"n":2}'), event('{"n":3}')]
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + b"".join(events))
        await cut.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    broken, spare = FakeReplica(script), FakeReplica(script)
    router = await start_router(broken, spare)
    client = await router.begin(request("POST", path, chat_body()))
    await client.wire.expect(events[-1])
    cut.set()
    answer = await client.answer()

    assert answer.status == 200
    assert answer.ended == "dirty"
    assert answer.body.chunks[:3] == [b'data: {"n":1}\n\n', b'data: {"n":2}\n\n', b'data: {"n":3}\n\n']
    (ending,) = answer.body.chunks[3:]
    name, _, data = ending.decode().rpartition("data: ")
    assert name == ("event: error\n" if path == "/v1/messages" else "")
    assert data.endswith("\n\n")
    assert json.loads(data)["error"]["message"]
    assert b"[DONE]" not in answer.body.raw
    assert b"finish_reason" not in answer.body.raw
    assert len(broken.requests) + len(spare.requests) == 1
    assert (await router.settled()).finished == {"replica_disconnected": 1}


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        pytest.param(SSE_HEAD, event("1") + b"20\r\ndata: half an ev", id="mid-chunk"),
        pytest.param(SSE_HEAD, event("1") + chunk(b"data: half"), id="mid-event"),
        pytest.param(SSE_HEAD, event("1")[:-2], id="before-the-end-of-a-chunk"),
        pytest.param(
            SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
            event("1"),
            id="compressed",
        ),
        pytest.param(SSE_HEAD.replace(b"text/event-stream", b"application/json"), event("1"), id="no-stream"),
    ],
)
@pytest.mark.parametrize("how", ENDINGS)
async def test_nothing_is_added_where_an_event_would_not_fit(
    start_router: StartRouter, head: bytes, sent: bytes, how: Ending
) -> None:
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(head + sent)
        await cut.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat())
    await client.wire.expect(sent)
    cut.set()
    answer = await client.answer()
    assert answer.ended == "dirty"
    assert answer.body.raw == sent
    assert (await router.settled()).finished == {"replica_disconnected": 1}


@pytest.mark.parametrize("how", ENDINGS)
async def test_stream_that_dies_after_its_head_is_not_ended_cleanly(
    start_router: StartRouter, how: Ending
) -> None:
    broken, spare = FakeReplica(reply(SSE_HEAD, then=how)), FakeReplica(reply(SSE_HEAD, then=how))
    router = await start_router(broken, spare)
    answer = await router.ask(chat())
    if answer.status == 200:
        assert answer.ended == "dirty"
    else:
        answer.refused(502, "replica_disconnected")
    assert len(broken.requests) + len(spare.requests) == 1
    assert (await router.settled()).finished == {"replica_disconnected": 1}


async def test_error_inside_a_stream_passes_unchanged_and_counts(start_router: StartRouter) -> None:
    failure = r'{"error":{"message":"engine died\nline 2","type":"internal_server_error","code":500}}'
    stream = event('{"choices":[{"delta":{"content":"x"}}]}') + event(failure) + DONE + LAST_CHUNK
    router = await start_router(FakeReplica(reply(SSE_HEAD + stream)))
    answer = await router.ask(chat())
    assert answer.body.raw == stream
    assert answer.ended == "clean"
    assert (await router.settled()).finished == {"upstream_error": 1}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "status",
    [
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "413 Too Big",
        "422 Unprocessable Entity",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "501 Not Implemented",
        "503 Service Unavailable",
        "529 Site Overloaded",
    ],
)
async def test_rejection_by_the_engine_passes_unchanged(
    start_router: StartRouter, status: str, stream: bool
) -> None:
    body = b'{"error":{"message":"maximum context length is 8192","type":"BadRequestError","code":400}}'
    raw = sized(body, status=status, headers="X-Err: ctx\r\nRetry-After: 7\r\n")
    replica = FakeReplica(reply(raw))
    router = await start_router(replica)
    answer = await router.ask(chat(stream=stream))
    assert answer.head.start == f"HTTP/1.1 {status}"
    assert answer.head.get("content-type") == "application/json"
    assert answer.head.get("x-err") == "ctx"
    assert answer.head.get("retry-after") == "7"
    assert answer.body.raw == body
    assert len(replica.requests) == 1
    assert (await router.settled()).finished == {"upstream_error": 1}


@pytest.mark.parametrize("status", ["400 Bad", "404 Not Found", "422 No", "500 Broken"])
async def test_rejection_is_not_sent_to_another_replica(start_router: StartRouter, status: str) -> None:
    replicas = [FakeReplica(reply(sized(b"{}", status=status))) for _ in range(3)]
    router = await start_router(*replicas)
    assert (await router.ask(chat())).status == int(status[:3])
    assert sum(len(replica.requests) for replica in replicas) == 1


USAGE = (
    event('{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}')
    + event('{"usage":{"total_tokens":5}}')
    + DONE
    + LAST_CHUNK
)


@pytest.mark.parametrize(
    "options",
    [{"stream_options": {"include_usage": True}}, {"stream_options": {"include_usage": False}}, {}],
    ids=["asked", "refused", "unsaid"],
)
async def test_usage_passes_and_is_never_asked_for(
    start_router: StartRouter, options: dict[str, Any]
) -> None:
    replica = FakeReplica(reply(SSE_HEAD + USAGE))
    router = await start_router(replica)
    raw = chat(**options)
    assert (await router.ask(raw)).body.raw == USAGE
    assert replica.requests[0].body == raw.partition(b"\r\n\r\n")[2]


DELTAS = [
    '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"x"}}]}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\":1}"}}]}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"index":2,"function":{"name":"h","arguments":"{}"}}]}}]}',
    '{"choices":[{"delta":{"reasoning_content":"…"}}]}',
    '{"choices":[{"delta":{"reasoning":"…"}}]}',
    '{"choices":[{"delta":{"content":null},"token_ids":null}]}',
    '{"x_vendor":{"deep":[1,2.50,"é"]},"choices":[]}',
    '{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.10,"bytes":[97],"top_logprobs":[]}]}}]}',
    '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
    '{"choices": "not a list"}',
    "not JSON at all",
    "[DONE]",
]


async def test_deltas_the_router_does_not_know_pass_unchanged(start_router: StartRouter) -> None:
    stream = b"".join(map(event, DELTAS)) + LAST_CHUNK
    router = await start_router(FakeReplica(reply(SSE_HEAD + stream)))
    assert (await router.ask(chat())).body.raw == stream
    assert (await router.settled()).finished == {"ok": 1}


@pytest.mark.parametrize("others", [0, 50])
async def test_each_event_arrives_before_the_next_is_sent(start_router: StartRouter, others: int) -> None:
    seen = asyncio.Event()
    arrivals: asyncio.Queue[int] = asyncio.Queue()

    async def script(received: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        if b"idle" in received.body:
            await connection.send(event("idle"))
            await seen.wait()
            await connection.send(LAST_CHUNK)
            return
        for number in range(EVENTS):
            await connection.send(event(f"{number:09}"))
            await arrivals.get()
        await connection.send(LAST_CHUNK)

    router = await start_router(FakeReplica(script))
    idle = [await router.begin(chat(user="idle")) for _ in range(others)]
    for client in idle:
        await client.wire.expect(event("idle"))
    client = await router.begin(chat())
    head = await client.head()
    for number in range(EVENTS):
        assert await client.wire.read_exactly(len(event(" " * 9))) == event(f"{number:09}")
        arrivals.put_nowait(number)
    assert (await client.body(head)).ended == "clean"
    seen.set()
    for client in idle:
        assert (await client.answer()).ended == "clean"


async def test_head_arrives_before_the_first_event(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(SSE_HEAD, gate, event("1") + LAST_CHUNK)))
    client = await router.begin(chat())
    head = await client.head()
    assert head.status == 200
    await router.stage(streaming=1)
    gate.set()
    assert (await client.body(head)).entity == b"data: 1\n\n"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_no_error_event_is_put_into_an_event_whose_line_end_is_a_chunk_of_its_own(
    start_router: StartRouter, line_end: bytes
) -> None:
    sent = event("1") + chunk(b"data: half an event") + chunk(line_end)
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + sent)
        await cut.wait()
        connection.wire.close()

    router = await start_router(FakeReplica(script))
    client = await router.begin(chat())
    await client.wire.expect(sent)
    cut.set()
    answer = await client.answer()
    assert answer.ended == "dirty"
    assert answer.body.raw == sent
