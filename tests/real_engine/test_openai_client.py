"""The real `openai` client in front of real vLLM notices nothing of the router."""

import json
from typing import Any

import openai
import pytest
from openai.types.chat import (
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionToolParam,
)

from tests.real_engine.rig import CONTEXT, MODEL
from tests.real_engine.samples import MANY_BYTES

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me about lists."}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    },
}
NAMED: ChatCompletionNamedToolChoiceParam = {"type": "function", "function": {"name": "get_weather"}}


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        model=MODEL, messages=QUESTION, **{"max_tokens": 32, "temperature": 0, **fields}
    )


def test_models_of_both_replicas_are_one_list(client: openai.OpenAI, direct: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).to_dict().keys() == next(iter(direct.models.list())).to_dict().keys()


def test_chat_says_what_the_engine_says(client: openai.OpenAI, direct: openai.OpenAI) -> None:
    routed, straight = ask(client), ask(direct)
    assert routed.choices == straight.choices
    assert routed.choices[0].message.content
    assert routed.usage == straight.usage


def test_streamed_text_is_the_whole_text(client: openai.OpenAI) -> None:
    chunks = list(ask(client, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == ask(client).choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_streamed_usage_comes_last_when_asked_for(client: openai.OpenAI) -> None:
    *_, last = ask(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage == ask(client).usage
    assert last.usage.completion_tokens == 32


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_tool_is_called(client: openai.OpenAI, choice: object) -> None:
    answer = ask(client, tools=[WEATHER], tool_choice=choice, max_tokens=200)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments).keys() == {"city"}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_streamed_tool_call_adds_up(client: openai.OpenAI, choice: object) -> None:
    chunks = ask(client, tools=[WEATHER], tool_choice=choice, max_tokens=200, stream=True)
    calls = [call.function for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert "".join(call.name or "" for call in calls) == "get_weather"
    assert json.loads("".join(call.arguments or "" for call in calls)).keys() == {"city"}


@pytest.mark.parametrize("stream", [False, True])
def test_characters_of_many_bytes_survive(client: openai.OpenAI, stream: bool) -> None:
    answer = ask(
        client, stream=stream, max_tokens=200, extra_body={"structured_outputs": {"choice": [MANY_BYTES]}}
    )
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
    else:
        text = answer.choices[0].message.content
    assert text == MANY_BYTES


def test_response_of_the_newer_api_arrives(client: openai.OpenAI, direct: openai.OpenAI) -> None:
    def answer(of: openai.OpenAI) -> str:
        question = "Tell me about lists."
        return of.responses.create(
            model=MODEL, input=question, max_output_tokens=24, temperature=0
        ).output_text

    assert answer(client) == answer(direct) != ""


def test_request_id_reaches_the_engine_and_comes_back(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, max_tokens=4, extra_headers={"X-Request-Id": "chosen-by-the-client"}
    )
    assert answer.headers["X-Request-Id"] == "chosen-by-the-client"
    assert answer.parse().id == "chatcmpl-chosen-by-the-client"


def test_made_request_id_is_the_engines_too(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION, max_tokens=4)
    assert answer.parse().id == f"chatcmpl-{answer.headers['X-Request-Id']}"


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_model_is_refused_by_the_router(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-17", messages=QUESTION, stream=stream)
    assert refused.value.code == "model_not_found"
    assert refused.value.param == "model"
    assert "X-Replicarouter-Replica" not in refused.value.response.headers


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_refused_by_the_engine(
    client: openai.OpenAI, direct: openai.OpenAI, stream: bool
) -> None:
    prompt: list[ChatCompletionMessageParam] = [{"role": "user", "content": "word " * CONTEXT}]
    refusals = []
    for one in (client, direct):
        with pytest.raises(openai.BadRequestError) as refused:
            one.chat.completions.create(model=MODEL, messages=prompt, stream=stream)
        refusals.append(refused.value)
    routed, straight = refusals
    assert routed.response.content == straight.response.content
    assert "X-Replicarouter-Replica" in routed.response.headers


def test_body_that_is_no_json_is_refused_by_the_router(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", cast_to=object, content=b'{"model": "tiny", "messages": [')
    assert refused.value.code == "invalid_request"


def test_embeddings_that_the_engine_lacks_are_its_own_refusal(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.embeddings.create(model=MODEL, input="list")
    assert refused.value.body == {"detail": "Not Found"}
