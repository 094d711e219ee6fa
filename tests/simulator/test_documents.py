import json
from typing import Any

from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.documents import completion_document, model_list
from replicarouter.simulator.fields import Fields
from replicarouter.simulator.tokens import text_of
from replicarouter.simulator.usage import Usage

API = Api("sim", 4096)
USAGE = Usage(prompt=9, cached=0, created=0, completion=8, reasoning=0)
TOOLS = [{"type": "function", "function": {"name": "clock"}}]


def document(request: GenerationRequest) -> dict[str, Any]:
    raw = completion_document(request, model="sim", answer_id="chatcmpl-a1", created=1795951605, usage=USAGE)
    return dict(json.loads(raw))


def chat(**fields: Any) -> GenerationRequest:
    messages = [{"role": "user", "content": "Hello"}]
    return API.chat(Fields({"messages": messages, "max_tokens": 8, **fields}))


def test_chat_document_has_the_whole_text() -> None:
    request = chat()
    answer = document(request)
    (choice,) = answer["choices"]
    assert answer["object"] == "chat.completion"
    assert answer["usage"] == USAGE.as_json()
    assert choice["message"]["content"] == text_of(request.plans[0].seed, 0, 8)
    assert choice["message"]["reasoning"] is None
    assert choice["finish_reason"] == "length"


def test_reasoning_is_apart_from_the_content() -> None:
    request = chat(reasoning_effort="low")
    message = document(request)["choices"][0]["message"]
    assert message["reasoning"] == text_of(request.plans[0].seed, 0, 4)
    assert message["content"] == text_of(request.plans[0].seed, 4, 4)


def test_answer_cut_within_its_reasoning_has_no_content() -> None:
    message = document(chat(reasoning_effort="low", max_tokens=1))["choices"][0]["message"]
    assert message["reasoning"]
    assert message["content"] is None


def test_tool_call_is_in_the_message() -> None:
    (choice,) = document(chat(tools=TOOLS))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    assert call["type"] == "function"
    assert call["function"] == {"name": "clock", "arguments": "{}"}


def test_completion_document_has_one_text_a_choice() -> None:
    request = API.completion(Fields({"prompt": ["a", "b"], "max_tokens": 3, "n": 2}))
    answer = document(request)
    assert answer["object"] == "text_completion"
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == [
        text_of(plan.seed, 0, 3) for plan in request.plans
    ]


def test_model_list_names_the_model_and_its_context() -> None:
    (card,) = json.loads(model_list("sim", 2048, 1))["data"]
    assert (card["id"], card["max_model_len"], card["object"]) == ("sim", 2048, "model")
