"""The spans of one request: which there are, what each says, and that their times fit."""

from random import Random
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, StatusCode

from replicarouter.exchange import OTHER, Exchange, PastAttempt, Stage
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.traceparent import Trace
from replicarouter.tracing.places import Places
from replicarouter.tracing.spans import OPERATIONS, SpanMaker
from tests.scene import a_fleet, an_exchange, named

TRACE, OWN, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b7ad6b7169203331"
OFFSET = 1e9


def an_answered(**fields: Any) -> Exchange:
    """A chat request whose answer was streamed by `a` from 1003 to 1010."""
    streamed = {
        "trace": Trace(TRACE, OWN, ABOVE, recorded=True),
        "caller": "team-a",
        "peer": "10.0.0.9",
        "model": "m1",
        "replica": "a",
        "policy": "random",
        "affinity": "new",
        "stage": Stage.STREAMING,
        "received_at": 1000.5,
        "leased_at": 1001.0,
        "sent_at": 1002.0,
        "head_at": 1003.0,
        "first_content_at": 1004.0,
        "ended_at": 1010.0,
        "status": 200,
        "outcome": "ok",
        "attempts": 1,
        "prompt_tokens": 30,
        "cached_tokens": 0,
        "completion_tokens": 7,
    }
    return an_exchange(**{**streamed, **fields})


def spans_of(exchange: Exchange) -> list[ReadableSpan]:
    fleet = a_fleet("a", "b")
    named(fleet, "a").engine = "vllm"
    maker = SpanMaker(Resource({}), InstrumentationScope("test"), Places(fleet), Random(1))
    return maker.spans_of(exchange, OFFSET)


def times(spans: list[ReadableSpan]) -> dict[str, tuple[float, float]]:
    """Begin and end of each span, on the router's clock."""
    return {span.name: (_at(span.start_time), _at(span.end_time)) for span in spans}


def _at(nanoseconds: int | None) -> float:
    assert nanoseconds is not None
    return round(nanoseconds / 1e9 - OFFSET, 3)


def test_a_streamed_answer_has_a_span_for_each_part_of_its_time() -> None:
    assert times(spans_of(an_answered())) == {
        "POST /v1/chat/completions": (1000, 1010),
        "queue": (1000.5, 1001),
        "connect": (1001, 1002),
        "prefill": (1002, 1004),
        "decode": (1004, 1010),
    }


def test_the_spans_form_a_tree_below_the_callers() -> None:
    server, *children = spans_of(an_answered())
    assert (server.kind, server.context.trace_id, server.context.span_id) == (
        SpanKind.SERVER,
        int(TRACE, 16),
        int(OWN, 16),
    )
    assert server.parent is not None
    assert server.parent.span_id == int(ABOVE, 16)
    assert [child.parent for child in children] == [server.context] * 4
    assert len({child.context.span_id for child in children}) == len(children)
    assert {child.context.trace_id for child in children} == {int(TRACE, 16)}


def test_the_root_of_a_trace_has_no_parent() -> None:
    assert spans_of(an_answered(trace=Trace(TRACE, OWN, recorded=True)))[0].parent is None


def test_the_server_span_says_what_was_asked_and_what_came() -> None:
    assert spans_of(an_answered())[0].attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "client.address": "10.0.0.9",
        "server.address": "a.invalid",
        "server.port": 8000,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m1",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "m1",
        "gen_ai.response.time_to_first_chunk": 2.0,
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 7,
        "replicarouter.request_id": "c",
        "replicarouter.caller": "team-a",
        "replicarouter.outcome": "ok@streaming",
        "replicarouter.attempts": 1,
        "replicarouter.replica": "a",
        "replicarouter.policy": "random",
        "replicarouter.affinity": "new",
    }


def test_the_parts_that_a_replica_has_say_which() -> None:
    for span in spans_of(an_answered())[2:]:
        assert span.attributes == {
            "replicarouter.replica": "a",
            "server.address": "a.invalid",
            "server.port": 8000,
        }
        assert span.kind is SpanKind.CLIENT


def test_an_answer_in_one_piece_is_prefill_until_its_head() -> None:
    spans = times(spans_of(an_answered(first_content_at=0.0)))
    assert (spans["prefill"], spans["decode"]) == ((1002, 1003), (1003, 1010))


ENDED_EARLY: dict[str, tuple[dict[str, Any], list[str]]] = {
    "receiving": ({"received_at": 0.0, "leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0}, []),
    "queued": ({"leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0}, ["queue"]),
    "connecting": ({"sent_at": 0.0, "head_at": 0.0}, ["queue", "connect"]),
    "sent": ({"head_at": 0.0}, ["queue", "connect", "prefill"]),
}


@pytest.mark.parametrize("stage", ENDED_EARLY)
def test_a_request_that_ends_early_has_the_spans_it_came_to(stage: str) -> None:
    fields, names = ENDED_EARLY[stage]
    ended = {**fields, "first_content_at": 0.0, "status": 0, "outcome": "queue_timeout", "attempts": 0}
    server, *children = spans_of(an_answered(**ended))
    assert [child.name for child in children] == names
    assert server.status.status_code is StatusCode.ERROR
    if children:
        assert _at(children[-1].end_time) == 1010
        assert dict(children[-1].attributes or {})["error.type"] == "queue_timeout"


def test_attempts_that_failed_are_spans_with_their_replica_and_reason() -> None:
    past = (PastAttempt("b", "connect_failed", 1000.6, 0.0, 1000.9),)
    spans = spans_of(an_answered(past=past, attempts=2))
    assert [span.name for span in spans[1:]] == ["queue", "attempt", "connect", "prefill", "decode"]
    attempt = spans[2]
    assert times([attempt])["attempt"] == (1000.6, 1000.9)
    assert dict(attempt.attributes or {})["replicarouter.replica"] == "b"
    assert dict(attempt.attributes or {})["error.type"] == "connect_failed"
    assert attempt.status.status_code is StatusCode.ERROR
    assert spans[0].status.status_code is StatusCode.UNSET
    assert times(spans)["queue"] == (1000.5, 1000.6)


FAULTS: dict[str, tuple[dict[str, Any], str | None, StatusCode]] = {
    "ok": ({}, None, StatusCode.UNSET),
    "gone": ({"outcome": "client_gone"}, "client_gone", StatusCode.UNSET),
    "rejected": ({"outcome": "upstream_error", "status": 400}, "400", StatusCode.UNSET),
    "engine": ({"outcome": "upstream_error", "status": 500}, "500", StatusCode.ERROR),
    "in-band": ({"outcome": "upstream_error"}, "upstream_error", StatusCode.ERROR),
    "router": ({"outcome": "no_replica", "status": 503}, "no_replica", StatusCode.ERROR),
    "cut": ({"outcome": "replica_disconnected"}, "replica_disconnected", StatusCode.ERROR),
    "full": ({"outcome": "queue_full", "status": 429}, "queue_full", StatusCode.UNSET),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_named_and_an_error_where_it_is_not_the_clients(fault: str) -> None:
    fields, error, status = FAULTS[fault]
    server = spans_of(an_answered(**fields))[0]
    assert (server.attributes or {}).get("error.type") == error
    assert server.status.status_code is status


def test_what_is_not_served_has_no_route_and_no_model() -> None:
    server = spans_of(an_answered(endpoint=OTHER, path="/etc", model="", status=404))[0]
    assert server.name == "POST"
    assert not [name for name in server.attributes or {} if name.startswith(("gen_ai.", "http.route"))]


def test_long_and_odd_texts_of_clients_are_cut_and_cleaned() -> None:
    server = spans_of(an_answered(client_id="\udcff" + "x" * 500, path="/" + "y" * 500))[0]
    facts = dict(server.attributes or {})
    assert facts["replicarouter.request_id"] == "?" + "x" * 199
    assert len(str(facts["url.path"])) == 200


ODD: list[dict[str, Any]] = [
    {"path": "/v1/\udcff\ud800"},
    {"method": "\udcff"},
    {"model": "\ud800"},
    {"replica": "\ud800"},
    {"caller": "\udcff"},
    {"peer": "\udcff"},
    {"client_id": "\udcff\n"},
    {"policy": "\udcff", "affinity": "\udcff", "outcome": "\udcff"},
    {"past": (PastAttempt("\udcff", "\udcff", 1000.6, 0.0, 1000.9),), "attempts": 2},
    {"prompt_tokens": 2**70, "completion_tokens": -(2**70), "status": 2**70},
    {"cached_tokens": -5},
    {"ended_at": 500.0},
    {"ended_at": -2 * OFFSET},
    {"accepted_at": -2 * OFFSET, "received_at": -2 * OFFSET},
    {"first_content_at": 1.0, "sent_at": 5000.0},
]


@pytest.mark.parametrize("fields", ODD, ids="-".join)
def test_whatever_an_exchange_holds_its_spans_can_be_encoded(fields: dict[str, Any]) -> None:
    spans = spans_of(an_answered(**fields))
    (resource,) = ExportTraceServiceRequest.FromString(
        encode_spans(spans).SerializePartialToString()
    ).resource_spans
    encoded = resource.scope_spans[0].spans
    assert len(encoded) == len(spans)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in encoded)
    assert all(
        len(span.attributes) == len(made.attributes or {}) for span, made in zip(encoded, spans, strict=True)
    )


def test_a_path_that_is_not_utf_8_keeps_its_attribute() -> None:
    server = spans_of(an_answered(path="/v1/\udcff", method="P\udcff"))[0]
    assert dict(server.attributes or {})["url.path"] == "/v1/?"
    assert server.name == "P? /v1/chat/completions"


def test_operations_are_those_of_endpoints_that_exist() -> None:
    served = {path: Endpoints().find(path) for path in OPERATIONS}
    assert {path: endpoint.label for path, endpoint in served.items() if endpoint} == dict(
        zip(OPERATIONS, OPERATIONS, strict=True)
    )
