"""Traces through the whole router: what a replica sees of them, and the spans a collector gets."""

import asyncio
import json
import time
from typing import Any

import pytest

from replicarouter.protocol.traceparent import Parent, parse
from tests.fakes.client import chat, request
from tests.fakes.collector import FakeCollector, SpanSeen
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, reply, silence
from tests.fakes.running import StartRouter
from tests.fakes.served import Serve
from tests.fakes.websocket import HANDSHAKE, SWITCHING, handshake
from tests.fakes.wire import eventually
from tests.journeys.test_refusals import BARE

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
STEADY = {"interval": 1000}

CONTENT = '{"choices":[{"delta":{"content":"x"}}]}'
USAGE = (
    '{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":2,'
    '"prompt_tokens_details":{"cached_tokens":16}}}'
)


def told(received: Received) -> Parent:
    """What a replica was told of the trace: exactly one valid field."""
    (value,) = received.head.all("traceparent")
    parent = parse(value)
    assert parent is not None
    return parent


@pytest.mark.parametrize("name", ["traceparent", "TRACEPARENT", "TraceParent"])
@pytest.mark.parametrize("value", [VALID, UNSAMPLED, f"cc-{TRACE}-{SPAN}-03-later"])
async def test_a_valid_parent_passes_byte_for_byte(start_router: StartRouter, name: str, value: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    await router.ask(chat(headers={name: value, "TraceState": "a=1 ,b=2"}))
    fields = replica.requests[0].head.fields
    assert (name, value) in fields
    assert ("TraceState", "a=1 ,b=2") in fields
    assert told(replica.requests[0]).trace_id == TRACE


async def test_a_request_without_a_parent_gets_one(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    for _ in range(2):
        await router.ask(chat(headers={"tracestate": "lost=1"}))
    one, other = (told(received) for received in replica.requests)
    assert one.trace_id != other.trace_id
    assert one.flags == 1
    assert [received.head.all("tracestate") for received in replica.requests] == [[], []]


@pytest.mark.parametrize("sent", [["junk"], [VALID, VALID], [f"ff-{TRACE}-{SPAN}-01"], [f"{VALID}-x"]])
async def test_an_invalid_parent_is_replaced(start_router: StartRouter, sent: list[str]) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    lines = "".join(f"Traceparent: {value}\r\n" for value in sent)
    raw = chat(headers={"tracestate": "a=1", "X-Stays": "yes"})
    await router.ask(raw.replace(b"\r\n", b"\r\n" + lines.encode(), 1))
    assert told(replica.requests[0]).trace_id != TRACE
    assert replica.requests[0].head.all("tracestate") == []
    assert replica.requests[0].head.get("x-stays") == "yes"


@pytest.mark.parametrize("sent", [{}, {"traceparent": "junk"}])
async def test_no_trace_begins_where_none_is_to(start_router: StartRouter, sent: dict[str, str]) -> None:
    replica = FakeReplica()
    router = await start_router(replica, tracing={"start": False})
    await router.ask(chat(headers={**sent, "tracestate": "a=1"}))
    assert replica.requests[0].head.all("traceparent") == list(sent.values())
    assert replica.requests[0].head.all("tracestate") == ["a=1"]


async def test_an_unsampled_trace_begins_where_the_share_is_nothing(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, tracing={"sample_ratio": 0})
    await router.ask(chat())
    assert told(replica.requests[0]).flags == 0


@pytest.mark.parametrize("sent", [{}, {"traceparent": VALID}])
async def test_every_attempt_belongs_to_the_same_trace(
    start_router: StartRouter, sent: dict[str, str]
) -> None:
    refusing, live = FakeReplica(reply(BARE), name="a"), FakeReplica(name="b")
    router = await start_router(refusing, live, policy="round-robin", health=STEADY)
    for _ in range(2):
        assert (await router.ask(chat(headers=sent))).status == 200
    (refused,) = refusing.requests
    (served,) = [one for one in live.requests if told(one).trace_id == told(refused).trace_id][:1]
    assert told(served) == told(refused)
    if sent:
        assert told(served) == Parent(TRACE, SPAN, 1)


async def test_a_session_is_told_its_trace(start_router: StartRouter) -> None:
    replica = FakeReplica(reply(SWITCHING), read_bodies=False)
    router = await start_router(replica)
    for headers in (HANDSHAKE, {**HANDSHAKE, "traceparent": VALID}):
        client = await router.connect()
        await client.send(handshake(headers=headers))
        assert (await client.head()).status == 101
        client.leave()
    begun, followed = (told(received) for received in replica.requests)
    assert begun.trace_id != TRACE
    assert followed == Parent(TRACE, SPAN, 1)


async def test_an_upload_is_told_its_trace(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    body = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm1\r\n--x--\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for headers in (form, {**form, "traceparent": VALID}):
        raw = request("POST", "/v1/audio/transcriptions", body, headers, chunked=True)
        assert (await router.ask(raw)).status == 200
    begun, followed = (told(received) for received in replica.requests)
    assert begun.trace_id != TRACE
    assert followed == Parent(TRACE, SPAN, 1)


# Spans


def inside(child: SpanSeen, parent: SpanSeen) -> bool:
    return parent.begin <= child.begin <= child.end <= parent.end


async def streaming(received: Received, connection: Connection) -> None:
    """Answer with a stream whose parts come one after the other."""
    await asyncio.sleep(0.05)
    await connection.send(SSE_HEAD + event(CONTENT))
    await asyncio.sleep(0.05)
    await connection.send(event(CONTENT) + event(USAGE) + event("[DONE]") + LAST_CHUNK)


async def test_a_request_is_a_tree_of_spans_and_its_replica_below_it(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        replica = FakeReplica(streaming, name="a")
        router = await start_router(
            replica, api_keys={"team-a": "sk-secret"}, tracing={"otlp_endpoint": collector.endpoint}
        )
        began = time.time()
        sent = {"traceparent": VALID, "tracestate": "v=1", "Authorization": "Bearer sk-secret"}
        hidden = [{"role": "user", "content": "the-hidden-words"}]
        await router.ask(chat(messages=hidden, headers=sent))
        spans = await collector.trace(5)
        ended = time.time()
    (server,) = spans.pop("POST /v1/chat/completions")
    assert (server.trace_id, server.parent_id, server.kind) == (TRACE, SPAN, "SERVER")
    assert told(replica.requests[0]) == Parent(TRACE, server.span_id, 1)
    assert replica.requests[0].head.all("tracestate") == ["v=1"]
    assert {name: len(some) for name, some in spans.items()} == dict.fromkeys(
        ("queue", "connect", "prefill", "decode"), 1
    )
    for (span,) in spans.values():
        assert (span.trace_id, span.parent_id) == (TRACE, server.span_id)
        assert inside(span, server)
    assert began <= server.begin <= server.end <= ended
    assert spans["prefill"][0].end == spans["decode"][0].begin
    assert spans["prefill"][0].end - spans["prefill"][0].begin > 0.04
    assert spans["decode"][0].end - spans["decode"][0].begin > 0.04
    facts = server.attributes
    assert (facts["gen_ai.operation.name"], facts["gen_ai.request.model"]) == ("chat", "m1")
    assert facts["gen_ai.usage.input_tokens"] == 30
    assert facts["gen_ai.usage.cache_read.input_tokens"] == 16
    assert facts["gen_ai.usage.output_tokens"] == 2
    assert facts["server.port"] == replica.port
    assert (facts["replicarouter.replica"], facts["replicarouter.caller"]) == ("a", "team-a")
    assert server.resource["service.name"] == "replicarouter"
    for secret in (b"the-hidden-words", b"sk-secret"):
        assert not [body for body in collector.bodies if secret in body]


async def test_a_trace_that_begins_here_is_rooted_here(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        replica = FakeReplica()
        router = await start_router(replica, tracing={"otlp_endpoint": collector.endpoint})
        await router.ask(chat(stream=False))
        (server,) = (await collector.trace(5))["POST /v1/chat/completions"]
    assert server.parent_id == ""
    assert told(replica.requests[0]) == Parent(server.trace_id, server.span_id, 1)


async def test_what_its_caller_does_not_sample_makes_no_spans(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        replica = FakeReplica()
        router = await start_router(replica, tracing={"otlp_endpoint": collector.endpoint})
        await router.ask(chat(headers={"traceparent": UNSAMPLED}))
        await router.ask(chat(headers={"X-Request-Id": "second"}))
        await collector.trace(5)
        await router.stop()
    assert told(replica.requests[0]) == Parent(TRACE, SPAN, 0)
    assert [
        span.attributes["replicarouter.request_id"] for span in collector.spans if span.kind == "SERVER"
    ] == ["second"]


async def test_attempts_that_failed_are_spans_too(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        refusing, live = FakeReplica(reply(BARE), name="a"), FakeReplica(name="b")
        router = await start_router(
            refusing,
            live,
            policy="round-robin",
            health=STEADY,
            tracing={"otlp_endpoint": collector.endpoint},
        )
        for _ in range(2):
            await router.ask(chat(stream=False))
        spans = await collector.trace(11)
    (attempt,) = spans["attempt"]
    assert attempt.attributes["replicarouter.replica"] == "a"
    assert attempt.attributes["error.type"]
    assert attempt.failed
    (server,) = [span for span in spans["POST /v1/chat/completions"] if span.span_id == attempt.parent_id]
    assert (server.failed, server.attributes["replicarouter.attempts"]) == (False, 2)
    assert inside(attempt, server)
    assert told(refusing.requests[0]).span_id == server.span_id


async def test_a_client_that_leaves_ends_its_spans(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        replica = FakeReplica(silence)
        router = await start_router(replica, tracing={"otlp_endpoint": collector.endpoint})
        client = await router.begin(chat())
        await replica.received()
        client.leave()
        spans = await collector.trace(4)
    (server,) = spans["POST /v1/chat/completions"]
    (prefill,) = spans["prefill"]
    assert (server.attributes["error.type"], prefill.attributes["error.type"]) == ("client_gone",) * 2
    assert "decode" not in spans


async def test_the_last_spans_are_sent_when_the_router_stops(start_router: StartRouter) -> None:
    async with FakeCollector() as collector:
        router = await start_router(FakeReplica(), tracing={"otlp_endpoint": collector.endpoint})
        await router.ask(chat())
        await router.stop()
        assert next(span.name for span in collector.spans) == "POST /v1/chat/completions"


async def test_a_dead_collector_is_nobodys_business(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    async with FakeCollector(hangs=True) as collector:
        replica = FakeReplica(held(b"", gate, OK))
        router = await start_router(replica, tracing={"otlp_endpoint": collector.endpoint})
        asked = asyncio.gather(*(router.ask(chat(stream=False)) for _ in range(50)))
        await replica.received(50)
        gate.set()
        assert {answer.status for answer in await asked} == {200}
        await eventually(lambda: collector.bodies, "the collector was asked")
        assert (await router.ask(chat(stream=False))).status == 200


async def test_the_access_line_names_the_trace(serve: Serve) -> None:
    router = await serve(FakeReplica(), flags=("--log-format", "json"))
    await router.ask(chat(headers={"traceparent": VALID}))
    await eventually(lambda: '"request"' in router.output, "the line is written")
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in router.output.splitlines() if line.startswith("{")
    ]
    assert [line["trace_id"] for line in lines if line["event"] == "request"] == [TRACE]
