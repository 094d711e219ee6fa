"""Answers of every spelling are read alike."""

import json
from typing import Any

import pytest

from replicarouter.acceptance.answers import Answer, ToolCall, read_stream, read_whole
from replicarouter.acceptance.errors import Refused, Unreadable
from replicarouter.acceptance.events import EventReader
from replicarouter.acceptance.reply import Reply, Streamed


def whole(document: object, status: int = 200) -> Answer:
    return read_whole(Reply("one", status, {}, json.dumps(document).encode()))


def streamed(*documents: dict[str, Any]) -> Answer:
    """The documents as events, a second apart, asked for at 100."""
    reader = EventReader()
    stream = Streamed(Reply("one", 200, {}, b""), 100.0, ended_at=200.0)
    for number, document in enumerate(documents):
        stream.events += reader.feed(f"data: {json.dumps(document)}\n\n".encode(), 101.0 + number)
    return read_stream(stream)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_a_whole_answer_and_a_stream_say_the_same() -> None:
    message = {"content": "It is late.", "reasoning": "Hm."}
    one = whole({"choices": [{"message": message, "finish_reason": "stop"}]})
    other = streamed(
        delta(role="assistant", content=""),
        delta(reasoning="Hm."),
        delta(content="It is"),
        delta(content=" late."),
        delta("stop"),
    )
    assert one.said == other.said == ("Hm.", "It is late.", "stop")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_found_under_both_names(field: str) -> None:
    assert streamed(delta(**{field: "Hm."})).reasoning == "Hm."
    assert whole({"choices": [{"message": {field: "Hm.", "content": None}}]}).reasoning == "Hm."


def test_times_are_of_the_first_content_and_of_the_first_text() -> None:
    answer = streamed(
        delta(role="assistant", content=None),
        delta(reasoning="Hm."),
        delta(content="a"),
        delta(content="b"),
        delta("stop"),
    )
    assert (answer.ttft, answer.text_at, answer.mean_gap) == (2.0, 103.0, 1.0)
    assert streamed(delta("stop")).ttft is None
    assert streamed(delta(content="a")).mean_gap is None


def test_pieces_of_a_call_are_put_together_by_their_index() -> None:
    def part(**fields: Any) -> dict[str, Any]:
        return delta(tool_calls=[fields])

    answer = streamed(
        part(index=0, function={"name": "f", "arguments": ""}),
        part(index=1, function={"name": "g", "arguments": "{}"}),
        part(index=0, function={"arguments": '{"a":'}),
        part(index=0, function={"arguments": "1}"}),
    )
    assert answer.calls == [ToolCall("f", '{"a":1}'), ToolCall("g", "{}")]


def test_usage_is_read_wherever_it_stands() -> None:
    usage: dict[str, object] = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    details = {**usage, "prompt_tokens_details": {"cached_tokens": 4}}
    read = streamed(delta(content="a"), {"choices": [], "usage": details}).usage
    assert read is not None
    assert (read.prompt, read.completion, read.total, read.cached) == (7, 2, 9, 4)
    without: dict[str, object] = {**usage, "prompt_tokens_details": None}
    bare = whole({"choices": [{"message": {}}], "usage": without}).usage
    assert bare is not None
    assert bare.cached is None
    assert streamed(delta(content="a")).usage is None


def test_an_error_in_a_stream_is_no_answer() -> None:
    with pytest.raises(Unreadable, match="core died"):
        streamed(delta(content="a"), {"error": {"message": "core died", "code": 500}})


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": []},
        {"choices": "x"},
        {"choices": [3]},
        {"choices": None},
    ],
)
def test_an_answer_without_a_choice_is_no_answer(document: object) -> None:
    with pytest.raises(Unreadable):
        whole(document)


def test_odd_values_are_taken_for_nothing() -> None:
    answer = streamed(
        {"choices": [{"delta": {"content": 3, "tool_calls": [7]}}], "usage": {"prompt_tokens": "x"}},
        {"choices": [{"delta": None}]},
    )
    assert (answer.text, answer.calls) == ("", [])


def test_a_refusal_is_told() -> None:
    with pytest.raises(Refused):
        whole({"error": {"message": "no"}}, status=400)
