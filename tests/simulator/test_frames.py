"""Frames are compared by key with streams recorded from vLLM 0.32.0."""

import json
from typing import Any

import pytest

from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.fields import Fields
from replicarouter.simulator.frames import StreamFrames
from replicarouter.simulator.tokens import text_of
from replicarouter.simulator.usage import Usage

API = Api("sim", 4096)
TOOL = {
    "type": "function",
    "function": {"name": 'get "it"', "parameters": {"properties": {"city": {"type": "string"}}}},
}
USAGE = Usage(prompt=9, cached=0, created=0, completion=3, reasoning=0)
CHUNK_KEYS = ["id", "object", "created", "model", "choices"]


def chat(**fields: Any) -> GenerationRequest:
    messages = [{"role": "user", "content": "Hello"}]
    return API.chat(Fields({"messages": messages, "stream": True, "max_tokens": 40, **fields}))


def completion(**fields: Any) -> GenerationRequest:
    return API.completion(Fields({"prompt": "Hello", "stream": True, **fields}))


def frames_of(request: GenerationRequest, *, chunked: bool = True) -> StreamFrames:
    return StreamFrames(request, model="sim", answer_id="chatcmpl-a1", created=1795951605, chunked=chunked)


def unframe(frame: bytes) -> dict[str, Any]:
    """The JSON of a frame, whose chunk size must be right."""
    size, _, rest = frame.partition(b"\r\n")
    assert int(size, 16) == len(rest) - 2
    assert rest.startswith(b"data: ")
    assert rest.endswith(b"\n\n\r\n")
    return dict(json.loads(rest[6:-4]))


def events_of(request: GenerationRequest, index: int = 0) -> list[dict[str, Any]]:
    frames = frames_of(request).choice(index, request.plans[index])
    return [unframe(frame) for frame in frames]


def deltas(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events]


def test_chat_stream_begins_with_the_role() -> None:
    first = events_of(chat())[0]
    assert list(first) == [*CHUNK_KEYS, "prompt_token_ids", "prompt_text"]
    assert first["id"] == "chatcmpl-a1"
    assert first["object"] == "chat.completion.chunk"
    assert first["created"] == 1795951605
    choice = first["choices"][0]
    assert list(choice) == ["index", "delta", "logprobs", "finish_reason"]
    assert choice["delta"] == {"role": "assistant", "content": ""}


def test_each_token_is_one_event_and_all_make_the_text() -> None:
    request = chat(max_tokens=200)
    events = events_of(request)[1:]
    assert len(events) == 200
    for event in events[:-1]:
        assert list(event) == CHUNK_KEYS
        choice = event["choices"][0]
        assert list(choice) == ["index", "delta", "logprobs", "finish_reason", "token_ids"]
        assert choice["finish_reason"] is None
    assert "".join(d["content"] for d in deltas(events)) == text_of(request.plans[0].seed, 0, 200)


def test_last_token_carries_the_reason_and_the_fingerprint() -> None:
    last = events_of(chat())[-1]
    assert list(last) == [*CHUNK_KEYS, "system_fingerprint"]
    choice = last["choices"][0]
    assert choice["finish_reason"] == "length"
    assert list(choice)[-2:] == ["stop_reason", "token_ids"]


def test_fingerprint_is_on_the_usage_event_when_there_is_one() -> None:
    request = chat(stream_options={"include_usage": True})
    assert "system_fingerprint" not in events_of(request)[-1]
    usage, done = frames_of(request).closing(USAGE)
    event = unframe(usage)
    assert list(event) == [*CHUNK_KEYS, "usage", "system_fingerprint"]
    assert event["choices"] == []
    assert event["usage"] == USAGE.as_json()
    assert done == b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def test_stream_without_usage_ends_with_done_alone() -> None:
    assert frames_of(chat()).closing(USAGE) == [b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"]


def test_reasoning_comes_before_content() -> None:
    request = chat(reasoning_effort="low")
    kinds = [next(iter(delta)) for delta in deltas(events_of(request))[1:]]
    assert kinds == ["reasoning"] * 20 + ["content"] * 20


def test_tool_call_streams_its_name_then_its_arguments() -> None:
    request = chat(tools=[TOOL], tool_choice="required")
    events = events_of(request)
    assert len(events) == 1 + request.plans[0].tokens
    name, *arguments, end = deltas(events)[1:]
    (call,) = name["tool_calls"]
    assert list(call) == ["id", "type", "index", "function"]
    assert call["id"].startswith("chatcmpl-tool-")
    assert call["function"] == {"name": 'get "it"'}
    assert len(arguments) > 1
    pieces = [delta["tool_calls"][0]["function"]["arguments"] for delta in arguments]
    assert all(delta["content"] is None for delta in arguments)
    assert list(json.loads("".join(pieces))) == ["city"]
    assert end == {}
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("budget", [1, 2, 4])
def test_cut_tool_call_ends_with_its_last_piece(budget: int) -> None:
    events = events_of(chat(tools=[TOOL], tool_choice="required", max_tokens=budget))
    assert len(events) == 1 + budget
    assert "tool_calls" in deltas(events)[-1]
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_single_token_is_first_and_last() -> None:
    events = events_of(chat(max_tokens=1))
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, "length"]


@pytest.mark.parametrize("reasoning", [None, "low"])
def test_continuous_usage_counts_with_the_tokens(reasoning: str | None) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = events_of(chat(stream_options=options, reasoning_effort=reasoning))
    assert [event["usage"]["completion_tokens"] for event in events] == list(range(41))
    assert events[-1]["usage"]["total_tokens"] == events[-1]["usage"]["prompt_tokens"] + 40


@pytest.mark.parametrize("continuous", [True, False])
def test_names_with_signs_of_their_own_pass_unchanged(continuous: bool) -> None:
    options = {"continuous_usage_stats": continuous}
    request = chat(stream_options=options, max_tokens=3)
    name = 'a%b"{}\\é'
    frames = StreamFrames(request, model=name, answer_id=name, created=1)
    for frame in frames.choice(0, request.plans[0]):
        event = unframe(frame)
        assert (event["model"], event["id"]) == (name, name)


def test_completion_stream_has_texts() -> None:
    request = completion(max_tokens=5)
    events = events_of(request)
    assert len(events) == 5
    assert events[0]["object"] == "text_completion"
    keys = ["index", "text", "logprobs", "finish_reason", "stop_reason"]
    for event in events:
        assert list(event["choices"][0]) == [*keys, "prompt_token_ids", "token_ids"]
    texts = [event["choices"][0]["text"] for event in events]
    assert "".join(texts) == text_of(request.plans[0].seed, 0, 5)
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_choices_are_told_apart_by_their_index() -> None:
    request = chat(n=2)
    for index in (0, 1):
        assert {event["choices"][0]["index"] for event in events_of(request, index)} == {index}
    assert deltas(events_of(request, 0)) != deltas(events_of(request, 1))


def test_without_chunks_the_events_are_the_same() -> None:
    request = chat(stream_options={"include_usage": True})
    framed, bare = frames_of(request), frames_of(request, chunked=False)
    pairs = zip(framed.choice(0, request.plans[0]), bare.choice(0, request.plans[0]), strict=True)
    for frame, event in pairs:
        assert frame.partition(b"\r\n")[2] == event + b"\r\n"
    assert bare.closing(USAGE)[-1] == b"data: [DONE]\n\n"
