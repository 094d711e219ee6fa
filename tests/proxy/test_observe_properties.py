"""Where an event of our own may follow, against a parser of event streams written for this test."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from replicarouter.protocol.framing import Chunked, UntilClose
from replicarouter.proxy.observe import Observer
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.message import chunk
from tests.properties import examples
from tests.scene import HandClock, an_exchange

METRICS = Metrics()
LINE = st.sampled_from([b"data: x", b"data:", b": ping", b"event: error", b"id: 7", b"", b"", b"x", b"0"])
LINE_END = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
NEXT_LINE_END = re.compile(rb"\r\n|\n|\r")


def between_events(content: bytes) -> bool:
    """Whether everything so far is whole events: nothing begun waits for more lines."""
    lines = NEXT_LINE_END.split(content)
    unfinished = lines.pop()
    return unfinished == b"" and (not lines or lines[-1] == b"")


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Some lines of an event stream, with any line ends, cut off anywhere."""
    pieces = draw(st.lists(st.tuples(LINE, LINE_END), max_size=8))
    content = b"".join(line + end for line, end in pieces)
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = draw(st.lists(st.integers(0, len(data)), max_size=6))
    edges = [0, *sorted({*places, len(data)} - {0})]
    return [data[a:b] for a, b in pairwise(edges)]


def an_observer() -> Observer:
    exchange = an_exchange(model="m1", replica="a", received_at=990.0, leased_at=995.0, head_at=1000.0)
    return Observer(exchange, HandClock(), METRICS, stream=True)


@examples(400)
@given(content=streams(), data=st.data())
def test_an_event_is_never_put_into_another_one(content: bytes, data: st.DataObject) -> None:
    observer, framing = an_observer(), Chunked()
    for read in data.draw(cut(b"".join(map(chunk, data.draw(cut(content)))))):
        framing.feed(read)
        observer.chunk(read)
    if framing.at_boundary() and observer.ends_event(chunked=True):
        assert between_events(content)


@examples(400)
@given(content=streams(), data=st.data())
def test_an_event_is_never_put_into_another_one_without_chunks(content: bytes, data: st.DataObject) -> None:
    observer, framing = an_observer(), UntilClose()
    for read in data.draw(cut(content)):
        framing.feed(read)
        observer.chunk(read)
    if framing.at_boundary() and observer.ends_event(chunked=False):
        assert between_events(content)


@examples(200)
@given(events=st.lists(LINE.filter(len), max_size=6), line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_whole_event_is_seen_as_one(events: list[bytes], line_end: bytes) -> None:
    """The common case: a chunk holds an event, a read holds a chunk."""
    observer = an_observer()
    plain = an_observer()
    assert observer.ends_event(chunked=True)
    for line in events:
        event = line + line_end * 2
        observer.chunk(chunk(event))
        plain.chunk(event)
        assert observer.ends_event(chunked=True)
        assert plain.ends_event(chunked=False)
        assert not an_observer_of(chunk(line + line_end)).ends_event(chunked=True)
        assert not an_observer_of(line + line_end).ends_event(chunked=False)


def an_observer_of(read: bytes) -> Observer:
    observer = an_observer()
    observer.chunk(read)
    return observer
