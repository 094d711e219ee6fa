"""Which trace a request belongs to, and what its replica is told of it."""

from random import Random

import pytest
from multidict import CIMultiDict

from replicarouter.protocol.traceparent import UNTRACED, Parent, Tracing, parse

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"

READ = {
    VALID: 1,
    f"00-{TRACE}-{SPAN}-00": 0,
    f"00-{TRACE}-{SPAN}-ff": 255,
    f"01-{TRACE}-{SPAN}-03": 3,
    f"cc-{TRACE}-{SPAN}-01-what-comes-later": 1,
}

REFUSED = [
    "",
    "junk",
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE.upper()}-{SPAN}-01",
    f"00-{TRACE[1:]}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-1",
    f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE}-{SPAN}-01\n",
    f"01-{TRACE}-{SPAN}-01more",
    f"00-{TRACE}-{SPAN}-0x",
    f"٠٠-{TRACE}-{SPAN}-01",
    f"{VALID}, {VALID}",
]


def a_tracing(*, start: bool = True, ratio: float = 1.0, record: bool = False) -> Tracing:
    return Tracing(Random(7), start=start, ratio=ratio, record=record)


def fields(*traceparent: str, **others: str) -> CIMultiDict[str]:
    return CIMultiDict([*(("TraceParent", one) for one in traceparent), *others.items()])


def own(line: bytes) -> Parent:
    """The parent that a line of ours names."""
    name, _, value = line.decode().partition(": ")
    assert name == "traceparent"
    assert value.endswith("\r\n")
    parent = parse(value.removesuffix("\r\n"))
    assert parent is not None
    assert value.startswith("00-")
    return parent


@pytest.mark.parametrize("value", READ)
def test_a_valid_traceparent_is_read(value: str) -> None:
    assert parse(value) == Parent(TRACE, SPAN, READ[value])


@pytest.mark.parametrize("value", REFUSED)
def test_any_other_is_refused(value: str) -> None:
    assert parse(value) is None


@pytest.mark.parametrize("value", READ)
def test_a_valid_one_passes_as_it_is(value: str) -> None:
    trace = a_tracing().of(fields(value))
    assert (trace.trace_id, trace.line, trace.replaces, trace.recorded) == (TRACE, b"", frozenset(), False)


def test_without_one_a_trace_begins() -> None:
    tracing = a_tracing()
    traces = [tracing.of(fields()) for _ in range(100)]
    assert len({trace.trace_id for trace in traces}) == 100
    for trace in traces:
        assert own(trace.line) == Parent(trace.trace_id, trace.span_id, 1)
        assert not trace.replaces


@pytest.mark.parametrize("value", REFUSED)
def test_an_invalid_one_is_replaced_with_all_that_belongs_to_it(value: str) -> None:
    trace = a_tracing().of(fields(value, tracestate="a=1"))
    assert own(trace.line).trace_id == trace.trace_id != TRACE
    assert trace.replaces == {b"traceparent", b"tracestate"}


def test_several_are_as_bad_as_none() -> None:
    assert a_tracing().of(fields(VALID, VALID)).trace_id != TRACE


def test_a_state_without_a_parent_is_dropped() -> None:
    assert a_tracing().of(fields(tracestate="a=1")).replaces == {b"traceparent", b"tracestate"}


@pytest.mark.parametrize("sent", [fields(), fields("junk", tracestate="a=1"), fields(tracestate="a=1")])
def test_where_none_is_to_begin_all_passes_as_it_is(sent: CIMultiDict[str]) -> None:
    assert a_tracing(start=False, record=True).of(sent) is UNTRACED


@pytest.mark.parametrize(("flags", "passed"), [("01", 1), ("03", 3), ("fd", 1)])
def test_a_span_of_ours_comes_between_where_spans_are_made(flags: str, passed: int) -> None:
    trace = a_tracing(record=True).of(fields(f"00-{TRACE}-{SPAN}-{flags}", tracestate="a=1"))
    assert (trace.trace_id, trace.parent_id, trace.recorded) == (TRACE, SPAN, True)
    assert own(trace.line) == Parent(TRACE, trace.span_id, passed)
    assert trace.span_id != SPAN
    assert trace.replaces == {b"traceparent"}


def test_a_trace_that_its_caller_does_not_sample_is_left_alone() -> None:
    trace = a_tracing(record=True).of(fields(f"00-{TRACE}-{SPAN}-00"))
    assert (trace.line, trace.recorded) == (b"", False)


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_a_share_of_the_traces_begun_here_is_sampled(ratio: float, record: bool) -> None:
    tracing = a_tracing(ratio=ratio, record=record)
    traces = [tracing.of(fields()) for _ in range(2000)]
    sampled = [trace for trace in traces if own(trace.line).flags == 1]
    assert abs(len(sampled) / len(traces) - ratio) < 0.05
    assert [trace for trace in traces if trace.recorded] == (sampled if record else [])
    assert tracing.ratio == ratio
