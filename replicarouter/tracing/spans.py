"""One ended request as spans, made from its recorded times. No prompt, no key. Names are those of
https://opentelemetry.io/docs/specs/semconv/http/http-spans/ and of
https://github.com/open-telemetry/semantic-conventions-genai; ours begin with `replicarouter.`."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from replicarouter.exchange import CLIENT_GONE, OK, OTHER, UPSTREAM_ERROR, Exchange
from replicarouter.tracing.places import Places

LONGEST = 200
"""Characters of a text that a client or an engine has written."""

MOST = 2**63 - 1
"""The largest number that an attribute can hold."""

OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/generate": "text_completion",
    "/inference/v1/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v2/embed": "embeddings",
}
"""Values of `gen_ai.operation.name` by endpoint; others are operations that the conventions do not name."""

Value = str | int | float | bool
Attributes = dict[str, Value]


class SpanMaker:
    """Makes the spans of requests: one of the server, and its children `queue`, `attempt` (one for each that
    brought no answer), `connect`, `prefill` (until the first content, or else the first byte) and `decode`.

    `offset` is what the wall clock is ahead of the router's, in seconds.
    """

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, places: Places, random: Random
    ) -> None:
        self._resource = resource
        self._scope = scope
        self._places = places
        self._random = random

    def spans_of(self, exchange: Exchange, offset: float) -> list[ReadableSpan]:
        """The spans of an ended request; the first is that of the server."""
        trace = exchange.trace
        trace_id = int(trace.trace_id, 16)
        context = SpanContext(trace_id, int(trace.span_id, 16), is_remote=False, trace_flags=_SAMPLED)
        parent = None
        if trace.parent_id:
            parent = SpanContext(trace_id, int(trace.parent_id, 16), is_remote=True, trace_flags=_SAMPLED)
        named = exchange.endpoint != OTHER
        method = _clean(exchange.method)
        server = ReadableSpan(
            f"{method} {exchange.endpoint}" if named else method or "HTTP",
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=_sound(self._of_request(exchange)),
            kind=SpanKind.SERVER,
            status=_status(exchange),
            start_time=_nanoseconds(exchange.accepted_at + offset),
            end_time=_nanoseconds(max(exchange.accepted_at, exchange.ended_at) + offset),
            instrumentation_scope=self._scope,
        )
        return [server, *(self._child(context, part, offset) for part in self._parts(exchange))]

    def _child(self, parent: SpanContext, part: "_Part", offset: float) -> ReadableSpan:
        context = SpanContext(
            parent.trace_id, self._random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED
        )
        return ReadableSpan(
            part.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=_sound(part.attributes),
            kind=SpanKind.INTERNAL if part.name == "queue" else SpanKind.CLIENT,
            status=Status(StatusCode.ERROR) if "error.type" in part.attributes else _UNSET,
            start_time=_nanoseconds(part.begin + offset),
            end_time=_nanoseconds(part.end + offset),
            instrumentation_scope=self._scope,
        )

    def _parts(self, exchange: Exchange) -> "Iterator[_Part]":
        """What the request did, one part after the other; where it failed, the last one says so."""
        parts = [part for part in self._stages(exchange) if part.end >= part.begin]
        last = parts[-1] if parts else None
        for part in parts:
            if part is last and exchange.outcome != OK and part.name != "attempt":
                part.attributes["error.type"] = _error_type(exchange)
            yield part

    def _stages(self, exchange: Exchange) -> "Iterator[_Part]":
        intervals = {name: (begin, end) for name, begin, end in exchange.intervals()}
        if "queue" in intervals:
            yield _Part("queue", *intervals["queue"], {})
        if "retry" in intervals:
            for attempt in exchange.past:
                facts = self._of_replica(attempt.replica) | {"error.type": attempt.reason}
                yield _Part("attempt", attempt.leased_at, attempt.ended_at, facts)
        replica = self._of_replica(exchange.replica) if "connect" in intervals else {}
        if "connect" in intervals:
            yield _Part("connect", *intervals["connect"], dict(replica))
        if "head" not in intervals:
            return
        sent, head = intervals["head"]
        first = max(exchange.first_content_at or head, sent)
        yield _Part("prefill", sent, min(first, exchange.ended_at), dict(replica))
        if "stream" in intervals:
            yield _Part("decode", first, exchange.ended_at, dict(replica))

    def _of_request(self, exchange: Exchange) -> Attributes:
        facts: Attributes = {
            "http.request.method": exchange.method or "_OTHER",
            "url.path": exchange.path,
            "http.response.status_code": exchange.status,
            "client.address": exchange.peer,
            "error.type": _error_type(exchange),
            "replicarouter.request_id": exchange.client_id,
            "replicarouter.caller": exchange.caller,
            "replicarouter.outcome": f"{exchange.outcome}@{exchange.stage.label}",
            "replicarouter.attempts": exchange.attempts,
        }
        if exchange.endpoint != OTHER:
            facts["http.route"] = exchange.endpoint
        if exchange.leased_at:
            facts |= self._of_replica(exchange.replica)
            facts["replicarouter.policy"] = exchange.policy
            facts["replicarouter.affinity"] = exchange.affinity
        facts |= self._of_generation(exchange)
        return {name: value for name, value in facts.items() if value not in ("", 0) or name in _ZERO_TOO}

    def _of_generation(self, exchange: Exchange) -> Attributes:
        operation = OPERATIONS.get(exchange.endpoint)
        if operation is None or not exchange.model or exchange.model == OTHER:
            return {}
        place = self._places.find(exchange.replica)
        facts: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": exchange.model,
            "gen_ai.provider.name": place.engine if place is not None else "",
            "gen_ai.usage.input_tokens": exchange.prompt_tokens,
            "gen_ai.usage.output_tokens": exchange.completion_tokens,
        }
        if exchange.head_at and exchange.status < 400:
            facts["gen_ai.response.model"] = exchange.model
        if exchange.cached_tokens is not None:
            facts["gen_ai.usage.cache_read.input_tokens"] = exchange.cached_tokens
        if exchange.first_content_at:
            facts["gen_ai.request.stream"] = True
            facts["gen_ai.response.time_to_first_chunk"] = exchange.first_content_at - exchange.sent_at
        return facts

    def _of_replica(self, name: str) -> Attributes:
        place = self._places.find(name)
        facts: Attributes = {"replicarouter.replica": name}
        if place is not None:
            facts |= {"server.address": place.host, "server.port": place.port}
        return facts


class _Part(NamedTuple):
    """What is to become a child: its name, its time on the router's clock, and what is known of it."""

    name: str
    begin: float
    end: float
    attributes: Attributes


_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_ZERO_TOO = frozenset(("replicarouter.attempts", "gen_ai.usage.cache_read.input_tokens"))


def _error_type(exchange: Exchange) -> str:
    """How it failed: the status an engine answered with, or the code of the router's own error."""
    if exchange.outcome == OK:
        return ""
    if exchange.status >= 400 and exchange.outcome == UPSTREAM_ERROR:
        return str(exchange.status)
    return exchange.outcome


def _status(exchange: Exchange) -> Status:
    """An error for what is not the client's own doing, as the conventions for servers have it."""
    if exchange.outcome in (OK, CLIENT_GONE) or 400 <= exchange.status < 500:
        return _UNSET
    return Status(StatusCode.ERROR)


def _sound(facts: Attributes) -> Attributes:
    """Facts that can be encoded, whoever wrote them."""
    return {name: _sound_value(value) for name, value in facts.items()}


def _sound_value(value: Value) -> Value:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, int):
        return max(-MOST, min(value, MOST))
    return value


def _clean(text: str) -> str:
    """A text of others in UTF-8, which protobuf insists on."""
    return text[:LONGEST].encode("utf-8", "replace").decode()


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
