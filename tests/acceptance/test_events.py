"""Events come whole out of any reads, and what is malformed is told."""

import pytest

from replicarouter.acceptance.events import EventReader

STREAM = b': hello\n\ndata: {"n":1}\n\nevent: x\r\ndata: {"n":\r\ndata: 2}\r\n\r\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_reads_of_any_size_give_the_same_events(size: int) -> None:
    reader = EventReader()
    events = []
    for start in range(0, len(STREAM), size):
        events += reader.feed(STREAM[start : start + size], float(start))
    reader.end()
    assert [event.data for event in events] == [b'{"n":1}', b'{"n":\n2}', b"[DONE]"]
    assert reader.faults == []


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (b'data: {"n":1}\n\n', "it does not end with [DONE]"),
        (b'data: [DONE]\n\ndata: {"n":1}\n\n', "an event follows [DONE]"),
        (b"data: [DONE]\n", "it ends inside an event"),
        (b'data: {"n":\n\ndata: [DONE]\n\n', "an event's data is no JSON object"),
        (b"<html>\n\ndata: [DONE]\n\n", "a line is neither a field nor a comment"),
    ],
)
def test_what_is_malformed_is_told(stream: bytes, fault: str) -> None:
    reader = EventReader()
    reader.feed(stream, 0.0)
    reader.end()
    assert fault in reader.faults


def test_an_event_has_the_time_of_its_end() -> None:
    reader = EventReader()
    assert reader.feed(b"data: {}", 1.0) == []
    (event,) = reader.feed(b"\n\n", 2.0)
    assert event.at == 2.0
