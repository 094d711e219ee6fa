"""Connections of a running engine, seen by a raw client."""

import asyncio
import json
from typing import Any

import pytest

from replicarouter.simulator import SimulatedEngine
from tests.fakes.client import Answer, request
from tests.fakes.message import chunk
from tests.fakes.wire import DEADLINE, eventually
from tests.simulator.conftest import Connect, Start

ENDLESS = 30_000
"""Tokens of a stream that will not end within a test, unless nothing slows the engine."""

SLOW = {"profile": "tiny-cpu"}


def body(*, stream: bool = True, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": "Hello"}]
    return json.dumps({"messages": messages, "stream": stream, "max_tokens": 5, **fields}).encode()


def chat(**fields: Any) -> bytes:
    return request("POST", "/v1/chat/completions", body(**fields))


ENDLESS_CHAT = chat(max_tokens=ENDLESS, ignore_eos=True)


def events(answer: Answer) -> list[bytes]:
    """The payloads of an SSE answer that holds one event in each chunk."""
    assert answer.head.get("content-type") == "text/event-stream; charset=utf-8"
    for piece in answer.body.chunks:
        assert piece.startswith(b"data: ")
        assert piece.endswith(b"\n\n")
        assert piece.count(b"\n\n") == 1
    return [piece[6:-2] for piece in answer.body.chunks]


async def test_stream_has_one_event_a_chunk_and_ends_with_done(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    answer = await client.ask(chat(stream_options={"include_usage": True}))
    role, *tokens, usage, done = events(answer)
    assert answer.status == 200
    assert answer.ended == "clean"
    assert answer.head.names == {"date", "server", "content-type", "vary", "transfer-encoding"}
    assert json.loads(role)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 5
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 5
    assert json.loads(usage)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert done == b"[DONE]"


async def test_streamed_text_equals_the_whole_one(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    whole = (await client.ask(chat(stream=False, max_tokens=300))).json()
    streamed = [json.loads(e) for e in events(await client.ask(chat(max_tokens=300)))[:-1]]
    text = "".join(event["choices"][0]["delta"]["content"] for event in streamed)
    assert text == whole["choices"][0]["message"]["content"]


async def test_head_of_a_stream_comes_before_its_first_token(start: Start, connect: Connect) -> None:
    engine = await start(max_num_seqs=1, **SLOW)
    first, second = await connect(engine), await connect(engine)
    await first.send(ENDLESS_CHAT)
    await first.wire.expect(b"data: ")
    await second.send(chat())
    assert (await second.head()).status == 200
    await eventually(lambda: engine.waiting == 1, "the second request waits")
    assert b"data: " not in second.wire.unread


async def test_request_id_names_the_answer(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    named = request("POST", "/v1/chat/completions", body(stream=False), {"X-Request-Id": 'my-"id"-1'})
    assert (await client.ask(named)).json()["id"] == 'chatcmpl-my-"id"-1'
    ids = {(await client.ask(chat(stream=False))).json()["id"] for _ in range(3)}
    assert len(ids) == 3


async def test_connection_serves_one_request_after_the_other(start: Start, connect: Connect) -> None:
    engine = await start()
    client = await connect(engine)
    for _ in range(3):
        assert (await client.ask(chat())).ended == "clean"
        assert (await client.ask(request("GET", "/health"))).status == 200
    assert len(engine.connections) == 1


async def test_pipelined_requests_are_answered_in_order(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    await client.send(chat() + request("GET", "/version") + chat(stream=False))
    assert events(await client.answer())[-1] == b"[DONE]"
    assert "version" in (await client.answer()).json()
    assert (await client.answer()).json()["object"] == "chat.completion"


async def test_flood_of_pipelined_requests_is_not_taken_in(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client = await connect(engine)
    await client.send(chat(max_tokens=20))
    await client.wire.expect(b"data: ")
    flood = request("GET", "/health", headers={"X-Filler": "x" * 1000})
    client.wire.transport.write(flood * 2000)
    (connection,) = engine.connections
    await eventually(lambda: connection._read_paused, "the engine stops reading")
    assert connection._reader.buffered < 1 << 20
    await client.answer()
    for _ in range(2000):
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("framing", ["chunked", "expect", "split"])
async def test_bodies_come_in_any_framing(start: Start, connect: Connect, framing: str) -> None:
    client = await connect(await start())
    path, content = "/v1/chat/completions", body(stream=False)
    if framing == "chunked":
        head = request("POST", path, b"", chunked=True).partition(b"\r\n\r\n")[0]
        await client.send(head + b"\r\n\r\n" + chunk(content[:10]) + chunk(content[10:]))
        await client.send(b"0\r\n\r\n")
    elif framing == "expect":
        head, _, _ = request("POST", path, content, {"Expect": "100-continue"}).partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert (await client.head()).status == 100
        await client.send(content)
    else:
        raw = request("POST", path, content)
        for i in range(0, len(raw), 50):
            await client.send(raw[i : i + 50])
    assert (await client.answer()).status == 200


async def test_large_body_is_read(start: Start, connect: Connect) -> None:
    client = await connect(await start(max_model_len=4_000_000, kv_blocks=1_000_000))
    messages = [{"role": "user", "content": "x" * 8_000_000}]
    answer = await client.ask(chat(stream=False, messages=messages))
    assert answer.json()["usage"]["prompt_tokens"] == 2_000_007


async def test_http_1_0_gets_an_unchunked_answer_that_closes(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    await client.send(chat().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    answer = await client.answer()
    assert answer.body.framing == "close"
    assert answer.head.get("connection") == "close"
    assert answer.body.entity.startswith(b'data: {"id":')
    assert answer.body.entity.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_connection_closes_when_the_client_asks(start: Start, connect: Connect, stream: bool) -> None:
    client = await connect(await start())
    content = body(stream=stream)
    raw = request("POST", "/v1/chat/completions", content, {"Connection": "close"})
    answer = await client.ask(raw)
    assert answer.ended == "clean"
    assert answer.head.get("connection") == "close"
    assert await client.gone() == "fin"


async def test_malformed_request_is_answered_and_closed(start: Start, connect: Connect) -> None:
    client = await connect(await start())
    answer = await client.ask(b"NONSENSE\r\n\r\n")
    assert answer.status == 400
    assert answer.head.get("connection") == "close"
    assert await client.gone() == "fin"


async def test_idle_connection_is_closed_and_a_used_one_is_not(start: Start, connect: Connect) -> None:
    engine = await start(keep_alive=0.3, **SLOW)
    idle, busy, fresh = await connect(engine), await connect(engine), await connect(engine)
    await busy.ask(request("GET", "/health"))
    await busy.send(ENDLESS_CHAT)
    await busy.wire.expect(b"data: ")
    await idle.ask(request("GET", "/health"))
    assert await idle.gone() == "fin"
    assert not busy.wire.over
    assert not fresh.wire.over, "one that was never used may stay"


async def test_connection_that_has_begun_a_request_is_not_idle(start: Start, connect: Connect) -> None:
    engine = await start(keep_alive=0.3)
    slow, idle = await connect(engine), await connect(engine)
    await slow.ask(request("GET", "/health"))
    await slow.send(request("GET", "/health")[:-1])
    await eventually(lambda: len(engine.idle._since) == 0, "the engine has the beginning")
    await idle.ask(request("GET", "/health"))
    assert await idle.gone() == "fin"
    assert (await slow.ask(b"\n")).status == 200


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
async def test_departed_client_frees_its_slot(start: Start, connect: Connect, how: str, stream: bool) -> None:
    engine = await start(max_num_seqs=1, **SLOW)
    client = await connect(engine)
    await client.send(chat(stream=stream, max_tokens=ENDLESS, ignore_eos=True))
    await eventually(lambda: engine.running == 1, "the request runs")
    getattr(client.wire, how)()
    await eventually(lambda: engine.running == 0, "the slot is free")
    assert (engine.requests, engine.aborted) == (1, 1)
    await eventually(lambda: not engine.connections, "the connection is gone")


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
async def test_departed_client_leaves_the_queue(start: Start, connect: Connect, how: str) -> None:
    engine = await start(max_num_seqs=1, **SLOW)
    running, waiting = await connect(engine), await connect(engine)
    await running.send(ENDLESS_CHAT)
    await eventually(lambda: engine.running == 1, "the first request runs")
    await waiting.send(ENDLESS_CHAT)
    await eventually(lambda: engine.waiting == 1, "the second one waits")
    getattr(waiting.wire, how)()
    await eventually(lambda: engine.waiting == 0, "the queue is empty")
    assert engine.running == 1


async def test_slow_reader_is_not_buffered_for_and_loses_nothing(start: Start, connect: Connect) -> None:
    engine = await start(speed=0)
    client = await connect(engine, receive_buffer=1 << 18)
    client.wire.pause()
    client.wire.transport.write(chat(max_tokens=ENDLESS, ignore_eos=True))
    await eventually(lambda: engine.requests == 1 and engine.running == 0, "all is generated")
    (connection,) = engine.connections
    assert connection._write_paused
    assert connection._transport.get_write_buffer_size() < 1 << 18
    client.wire.resume()
    assert (await client.head()).status == 200
    unread = client.wire.unread
    await client.wire.until(lambda: unread.endswith(b"\r\n0\r\n\r\n"), "the end", 6 * DEADLINE)
    assert unread.count(b"\r\ndata: {") == 1 + ENDLESS
    assert unread.count(b"data: [DONE]\n\n") == 1
    unread.clear()
    assert (await client.ask(request("GET", "/health"))).status == 200


async def test_stream_behind_a_whole_answer_that_is_not_read_is_not_buffered(
    start: Start, connect: Connect
) -> None:
    engine = await start(kv_blocks=100_000)
    client = await connect(engine, receive_buffer=1 << 18)
    client.wire.pause()
    large = chat(stream=False, n=100, max_tokens=4000, ignore_eos=True)
    client.wire.transport.write(large * 3 + chat(max_tokens=ENDLESS, ignore_eos=True))
    await eventually(
        lambda: engine.requests == 4 and engine.running == 0,
        "all is generated",
        deadline=6 * DEADLINE,
    )
    (connection,) = engine.connections
    assert connection._transport.get_write_buffer_size() < 4 << 20
    client.wire.resume()
    await client.wire.until(lambda: client.wire.unread.endswith(b"\r\n0\r\n\r\n"), "the end", 6 * DEADLINE)
    assert client.wire.unread.count(b"\r\ndata: {") == 1 + ENDLESS


async def test_slow_reader_that_leaves_costs_nothing_more(start: Start, connect: Connect) -> None:
    engine = await start(speed=0)
    client = await connect(engine, receive_buffer=1 << 18)
    client.wire.pause()
    client.wire.transport.write(chat(max_tokens=ENDLESS, ignore_eos=True))
    await eventually(lambda: engine.requests == 1 and engine.running == 0, "all is generated")
    client.wire.reset()
    await eventually(lambda: not engine.connections, "the connection is gone")
    assert engine.aborted == 1


async def test_clients_beside_each_other_get_their_own_answers(start: Start, connect: Connect) -> None:
    engine: SimulatedEngine = await start(max_num_seqs=4)
    clients = [await connect(engine) for _ in range(20)]
    questions = [chat(seed=number, max_tokens=50) for number in range(20)]
    together = await asyncio.gather(
        *(client.ask(question) for client, question in zip(clients, questions, strict=True))
    )
    alone = [await clients[0].ask(question) for question in questions]
    for one, other in zip(together, alone, strict=True):
        texts = [
            [json.loads(e)["choices"][0]["delta"] for e in events(answer)[:-1]] for answer in (one, other)
        ]
        assert texts[0] == texts[1]


async def test_stopped_engine_cuts_its_streams(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client = await connect(engine)
    await client.send(ENDLESS_CHAT)
    await client.wire.expect(b"data: ")
    await engine.stop()
    await client.gone()
    assert b"[DONE]" not in client.wire.unread
    assert not engine.connections


async def test_queued_stream_is_kept_alive_by_comments_until_its_first_token(
    start: Start, connect: Connect
) -> None:
    engine = await start(max_num_seqs=1, sse_keep_alive=0.05, **SLOW)
    running, queued = await connect(engine), await connect(engine)
    await running.send(ENDLESS_CHAT)
    await running.wire.expect(b"data: ")
    await queued.send(chat(max_tokens=60))
    await queued.wire.until(lambda: queued.wire.unread.count(b": keep-alive") >= 2, "two comments")
    assert b"data: " not in queued.wire.unread
    running.leave()
    answer = await queued.answer()
    first = next(place for place, piece in enumerate(answer.body.chunks) if piece.startswith(b"data: "))
    assert first >= 2
    assert set(answer.body.chunks[:first]) == {b": keep-alive\n\n"}
    assert all(piece.startswith(b"data: ") for piece in answer.body.chunks[first:])


async def test_full_queue_is_busy_and_counted(start: Start, connect: Connect) -> None:
    engine = await start(max_num_seqs=1, max_num_queued_reqs=2, **SLOW)
    clients = [await connect(engine) for _ in range(2)]
    for client in clients:
        await client.send(ENDLESS_CHAT)
    await eventually(lambda: engine.running + engine.waiting == 2, "it is full")
    other = await connect(engine)
    refused = await other.ask(chat())
    assert refused.status == 503
    assert b"currently busy" in refused.body.entity
    assert refused.head.get("retry-after") is None
    assert (await other.ask(request("GET", "/health"))).status == 200
    page = (await other.ask(request("GET", "/metrics"))).body.entity
    series = b'vllm:admission_rejections_total{model_name="sim",reason="max_num_queued_reqs"} 1.0'
    assert series in page
    clients[0].leave()
    await eventually(lambda: engine.running + engine.waiting == 1, "there is room")
    assert (await other.ask(chat(n=2))).status == 503, "each choice counts"
