"""What answers say in passing, over answers recorded from vLLM 0.32.0."""

from collections.abc import Callable

import pytest

from replicarouter.protocol.content import (
    Usage,
    begins_answer,
    begins_reasoning,
    declines_in_band,
    ends_in_error,
    find_usage,
    gives_up,
    only_comments,
    says_all,
)

Recorded = Callable[[str], tuple[bytes, bytes]]

USAGE = {
    "chat": Usage(16, 8),
    "chat-stream": None,
    "chat-stream-logprobs": None,
    "chat-stream-usage": Usage(16, 6),
    "chat-stream-continuous-usage": Usage(16, 6),
    "completions-stream-usage": Usage(4, 4),
    "chat-reasoning": Usage(19, 60, 0),
    "chat-reasoning-stream": Usage(19, 60, 0),
    "tools-named": Usage(165, 35, 160),
    "tools-named-stream": None,
    "responses": Usage(16, 6, 0),
    "responses-stream": Usage(16, 4, 0),
    "anthropic-messages": Usage(16, 6),
    "anthropic-messages-stream": Usage(16, 4),
    "get-v1-models": None,
    "unknown-model": None,
}


@pytest.mark.parametrize("name", USAGE)
def test_usage_is_found_in_recorded_answers(recorded: Recorded, name: str) -> None:
    _, body = recorded(name)
    assert find_usage(body) == USAGE[name]


def test_of_several_usage_records_the_last_counts() -> None:
    tail = b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    tail += b'{"usage":{"prompt_tokens":9,"completion_tokens":2}}'
    assert find_usage(tail) == Usage(9, 2)


def test_blanks_and_nulls_in_a_usage_record_do_no_harm() -> None:
    tail = b'"usage": {"prompt_tokens": 7, "completion_tokens" : null, "details": {"cached_tokens": null}}'
    assert find_usage(tail) == Usage(7)


WRITTEN_BY_A_MODEL = [
    b'{"content":"\\"usage\\":{\\"prompt_tokens\\":99}"}',
    b'{"arguments":"{\\"usage\\":{\\"prompt_tokens\\":99}}"}',
    b"data: usage:{prompt_tokens:99}",
]


@pytest.mark.parametrize("text", WRITTEN_BY_A_MODEL)
def test_text_that_looks_like_usage_is_not_usage(text: bytes) -> None:
    assert find_usage(text) is None
    assert find_usage(b'"usage":{"prompt_tokens":3}' + text) == Usage(3)


def test_numbers_behind_the_usage_record_are_not_counted() -> None:
    tail = b'"usage":{"prompt_tokens":3}' + b" " * 2000 + b'"completion_tokens":5'
    assert find_usage(tail) == Usage(3)


@pytest.mark.parametrize("tail", [b'"usage":null', b'"usage":', b'"usage": ', b'"usage":[]', b'"usage"', b""])
def test_a_record_without_numbers_is_none(tail: bytes) -> None:
    assert find_usage(tail) is None


def events(body: bytes) -> list[bytes]:
    return body.split(b"\n\n\r\n")


FIRST_ANSWER = {
    "chat-stream": 1,
    "chat-stream-usage": 1,
    "completions-stream-usage": 0,
    "responses-stream": 4,
    "anthropic-messages-stream": 2,
    "tools-named-stream": 2,
}


@pytest.mark.parametrize("name", FIRST_ANSWER)
def test_the_answer_begins_with_its_first_text(recorded: Recorded, name: str) -> None:
    _, body = recorded(name)
    telling = [begins_answer(event) for event in events(body)]
    assert telling.index(True) == FIRST_ANSWER[name]


def test_reasoning_is_told_from_the_answer(recorded: Recorded) -> None:
    _, body = recorded("chat-reasoning-stream")
    parts = events(body)
    assert not any(begins_answer(part) for part in parts)
    assert [begins_reasoning(part) for part in parts].index(True) == 1


ANSWERS = [
    *(
        b'"content":"a"',
        b'"content": "a"',
        b'"text":"a"',
        b'"arguments":"{"',
        b'"content":"\\""',
        b'"content":" "',
    ),
    b'"content":"","x":1,"content":"a"',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}',
    b'"type":"response.function_call_arguments.delta"',
]
NO_ANSWERS = [
    *(
        b'"content":""',
        b'"content":null',
        b'"content":[]',
        b'"content":',
        b'"content":"',
        b'"content": ""',
        b"",
    ),
    *(b'"role":"assistant"', b"data: [DONE]", b": ping", b'"reasoning_content":"a"', b'"reasoning":"a"'),
    *(b'"finish_reason":"stop"', b'"type":"response.created"', b'\\"content\\":\\"a\\"', b'"text":{"x":1}'),
]


@pytest.mark.parametrize("data", ANSWERS)
def test_text_and_arguments_begin_an_answer(data: bytes) -> None:
    assert begins_answer(data)


@pytest.mark.parametrize("data", NO_ANSWERS)
def test_roles_nulls_and_empty_strings_do_not(data: bytes) -> None:
    assert not begins_answer(data)


def test_tool_arguments_of_the_messages_api_begin_an_answer() -> None:
    assert begins_answer(b'"delta":{"type":"input_json_delta","partial_json":"{\\"a\\""}')


@pytest.mark.parametrize(
    "data",
    [
        *(b'"reasoning":"a"', b'"reasoning_content": "a"', b'"thinking":"a"'),
        b'"type":"response.reasoning_text.delta"',
    ],
)
def test_reasoning_begins_in_any_dialect(data: bytes) -> None:
    assert begins_reasoning(data)
    assert not begins_answer(data)


@pytest.mark.parametrize("data", [b'"reasoning":""', b'"reasoning":null', b'"reasoning_effort":"low"', b""])
def test_empty_reasoning_does_not_begin(data: bytes) -> None:
    assert not begins_reasoning(data)


IN_BAND = [
    b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\ndata: [DONE]\n\n',
    b'data: {"id":1}\n\ndata: {"error":{"message":"x"}}\n\n',
    b'data:{"error":"x"}\n\n',
    b'9\r\ndata: {"error":{}}\n\n\r\n0\r\n\r\n',
    b'event: error\ndata: {"type":"error"}\n\n',
]
NOT_IN_BAND = [
    b'data: {"choices":[{"delta":{"content":"data: {\\"error\\": {"}}]}\n\n',
    b'data: {"error":null,"id":1}\n\n',
    b'data: {"id":1,"error":{"message":"x"}}\n\n',
    b"event: message_stop\ndata: {}\n\n",
    b"",
]


@pytest.mark.parametrize("tail", IN_BAND)
def test_an_error_in_band_is_seen(tail: bytes) -> None:
    assert ends_in_error(tail)


@pytest.mark.parametrize("tail", NOT_IN_BAND)
def test_other_ends_are_no_errors(tail: bytes) -> None:
    assert not ends_in_error(tail)


@pytest.mark.parametrize("name", [name for name in USAGE if "stream" in name])
def test_recorded_streams_end_without_an_error(recorded: Recorded, name: str) -> None:
    _, body = recorded(name)
    assert not ends_in_error(body)


@pytest.mark.parametrize(
    "data",
    [
        b": keep-alive\n\n",
        b": a\r\n\r\n",
        b": a\n: b\n\n",
        b"e\r\n: keep-alive\n\n\r\n",
        b":\n",
        b"6\r\n: a\n\n\r\n" * 2,
    ],
)
def test_reads_of_comments_alone_are_known(data: bytes) -> None:
    assert only_comments(data)


@pytest.mark.parametrize(
    "data",
    [
        b"data: 1\n\n",
        b": a\n\ndata: 1\n\n",
        b"data: 1\n\n: a\n\n",
        b"",
        b"\n\n",
        b"0\r\n\r\n",
        b": no line end",
    ],
)
def test_reads_with_anything_else_are_not(data: bytes) -> None:
    assert not only_comments(data)


def test_many_comments_are_told_in_no_time() -> None:
    assert not only_comments(b":\n" * 32 + b"x")


@pytest.mark.parametrize("code", [503, 429])
def test_an_engine_that_had_no_room_after_all_is_busy(code: int) -> None:
    tail = b'data: {"error": {"message": "busy", "code": %d}}\n\ndata: [DONE]\n\n' % code
    assert ends_in_error(tail)
    assert declines_in_band(tail)


def test_other_errors_in_band_are_no_sign_of_being_busy() -> None:
    assert not declines_in_band(b'data: {"error": {"message": "503", "code": 500}}\n\ndata: [DONE]\n\n')


ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
STOPPED = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
ABORTED = b'data: {"choices":[{"delta":{},"finish_reason": "abort"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("tail", "empty", "given_up"),
    [
        (ROLE + DONE, True, True),
        (ABORTED + DONE, False, True),
        (ABORTED + DONE, True, True),
        (ROLE + STOPPED + DONE, True, False),
        (STOPPED + DONE, False, False),
        (ROLE, True, False),
        (DONE, True, False),
        (b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}\n\n' + DONE, False, False),
    ],
)
def test_streams_that_their_engine_gave_up_are_known(tail: bytes, empty: bool, given_up: bool) -> None:
    assert gives_up(tail, empty=empty) is given_up


@pytest.mark.parametrize(
    ("tail", "all_said"),
    [
        (STOPPED + DONE, True),
        (b"e\r\n" + DONE + b"\r\n0\r\n\r\n", True),
        (b'data: {"error": {"message": "x"}}\n\n', True),
        (STOPPED, False),
        (DONE + b"x" * 64, False),
    ],
)
def test_a_client_has_been_told_all_at_done_or_at_an_error(tail: bytes, all_said: bool) -> None:
    assert says_all(tail) is all_said
