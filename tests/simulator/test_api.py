from typing import Any

import pytest

from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.fields import ApiError, Fields

API = Api("sim", 2048)
MESSAGES = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> GenerationRequest:
    return API.chat(Fields({"messages": MESSAGES, **fields}))


def completion(**fields: Any) -> GenerationRequest:
    return API.completion(Fields({"prompt": "Hello", **fields}))


@pytest.mark.parametrize(
    ("fields", "status", "kind", "param"),
    [
        ({"model": "nope"}, 404, "NotFoundError", "model"),
        ({"model": 1}, 400, "Bad Request", "body.model"),
        ({"messages": None}, 400, "Bad Request", "body.messages"),
        ({"messages": "hi"}, 400, "Bad Request", "body.messages"),
        ({"messages": [{"role": "user", "content": 1}]}, 400, "Bad Request", "body.messages"),
        ({"max_tokens": "many"}, 400, "Bad Request", "body.max_tokens"),
        ({"max_tokens": 5000}, 400, "BadRequestError", "max_tokens"),
        ({"max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
        ({"temperature": -1}, 400, "BadRequestError", "temperature"),
        ({"n": 0}, 400, "BadRequestError", None),
        ({"n": 1000}, 400, "BadRequestError", None),
        ({"stream_options": {"include_usage": True}}, 400, "BadRequestError", "stream_options"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "BadRequestError",
            None,
        ),
        (
            {"messages": [{"role": "user", "content": "word " * 2000}]},
            400,
            "BadRequestError",
            "input_tokens",
        ),
    ],
)
def test_bad_chat_request_gets_the_engines_error(
    fields: dict[str, Any], status: int, kind: str, param: str | None
) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    error = refused.value
    assert (error.status, error.kind, error.param) == (status, kind, param)
    assert error.message


@pytest.mark.parametrize("prompt", [None, 1, [], [[]], ["a", 1], [1.5], {"a": 1}])
def test_bad_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(ApiError) as refused:
        completion(prompt=prompt)
    assert refused.value.param == "body.prompt"


@pytest.mark.parametrize("model", [None, "", "sim"])
def test_absent_model_is_this_one(model: str | None) -> None:
    assert chat(model=model, max_tokens=3).plans[0].tokens == 3


def test_unknown_fields_are_ignored() -> None:
    assert chat(no_such_field=1, stop=["x"], max_tokens=3).plans[0].tokens == 3


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_tokens": 2048, "ignore_eos": True}, 2048 - 9),
        ({"ignore_eos": True}, 2048 - 9),
    ],
)
def test_limit_and_context_bound_the_answer(fields: dict[str, Any], tokens: int) -> None:
    request = chat(**fields)
    assert request.prompt_tokens == (9,)
    assert request.plans[0].tokens == tokens
    assert request.plans[0].finish_reason == "length"


def test_longer_prompts_and_tools_count_more_tokens() -> None:
    tools = [{"type": "function", "function": {"name": "clock"}}]
    parts = [{"type": "text", "text": "x" * 40}, {"type": "text", "text": "y" * 40}]
    assert chat(messages=[{"role": "user", "content": "x" * 80}]).prompt_tokens == (27,)
    assert chat(messages=[{"role": "user", "content": parts}]).prompt_tokens == (27,)
    assert chat(messages=[{"role": "assistant", "content": None}]).prompt_tokens == (7,)
    assert chat(tools=tools).prompt_tokens > chat().prompt_tokens


def test_completion_without_limit_has_sixteen_tokens() -> None:
    assert completion().plans[0].tokens == 16


def test_prompts_may_be_texts_token_ids_or_lists() -> None:
    assert completion(prompt=[1, 2, 3]).prompt_tokens == (3,)
    assert completion(prompt=[[1, 2], [3]]).prompt_tokens == (2, 1)
    assert completion(prompt=["abcdefgh", "x"]).prompt_tokens == (2, 1)


def test_choices_are_those_of_one_prompt_after_the_other() -> None:
    request = completion(prompt=["a" * 8, "b" * 40], n=2)
    assert [request.prompt_of(choice).tokens for choice in range(4)] == [2, 2, 10, 10]
    assert len({plan.seed for plan in request.plans}) == 4


def test_same_request_has_the_same_answer_streamed_or_not() -> None:
    assert chat(stream=True).plans == chat().plans
    assert chat(seed=5).plans != chat(seed=6).plans


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": True}}, True),
    ],
)
def test_reasoning_comes_on_request(fields: dict[str, Any], reasons: bool) -> None:
    assert (chat(**fields).plans[0].reasoning > 0) is reasons


def test_stream_options_are_read() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    request = chat(stream=True, stream_options=options)
    assert (request.stream, request.include_usage, request.continuous_usage) == (True,) * 3
    assert not chat(stream=True).include_usage


def test_tokenize_counts_what_a_prompt_would() -> None:
    answer = API.tokenize(Fields({"messages": MESSAGES}))
    assert answer["count"] == chat().prompt_tokens[0]
    assert answer["max_model_len"] == 2048
    text = API.tokenize(Fields({"prompt": "Hello world"}))
    tokens = text["tokens"]
    assert isinstance(tokens, list)
    assert text["count"] == len(tokens) == 3
    with pytest.raises(ApiError, match="prompt"):
        API.tokenize(Fields({}))


def test_template_comes_before_every_conversation_and_no_text() -> None:
    messages = {"messages": [{"role": "user", "content": "Hello"}]}
    plain, other = API, Api("sim", 2048, template="You are kind")
    count = plain.tokenize(Fields(messages))["count"]
    assert isinstance(count, int)
    assert other.tokenize(Fields(messages))["count"] == count + 3
    assert other.chat(Fields(messages)).prompt_tokens == (count + 3,)
    assert other.tokenize(Fields({"prompt": "Hello"})) == plain.tokenize(Fields({"prompt": "Hello"}))


def test_counts_of_tokenize_are_those_of_usage() -> None:
    messages = {"messages": [{"role": "user", "content": "Hello, what is the time?"}]}
    told = API.tokenize(Fields(messages))
    assert told["count"] == len(told["tokens"]) == API.chat(Fields(messages)).prompt_tokens[0]  # type: ignore[arg-type]
    assert told["max_model_len"] == 2048
