"""Whole JSON answers: a completed generation, and what the engine says about itself."""

from typing import Any

import orjson

from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.frames import FINGERPRINT, call_id
from replicarouter.simulator.plans import Plan
from replicarouter.simulator.tokens import text_of
from replicarouter.simulator.usage import Usage

API_VERSION = "0.32.0+simulated"
"""The vLLM release whose HTTP behaviour the engine follows."""


def completion_document(
    request: GenerationRequest, *, model: str, answer_id: str, created: int, usage: Usage
) -> bytes:
    """The answer to a request that does not stream."""
    choice = _chat_choice if request.chat else _text_choice
    return orjson.dumps(
        {
            "id": answer_id,
            "object": "chat.completion" if request.chat else "text_completion",
            "created": created,
            "model": model,
            "choices": [choice(i, plan, answer_id) for i, plan in enumerate(request.plans)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage.as_json(),
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        }
    )


def model_list(model: str, context: int, created: int) -> bytes:
    """The answer of `/v1/models`."""
    card = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "replicarouter",
        "root": model,
        "parent": None,
        "max_model_len": context,
        "permission": [],
    }
    return orjson.dumps({"object": "list", "data": [card]})


def _chat_choice(index: int, plan: Plan, answer_id: str) -> dict[str, Any]:
    text = plan.said
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text if text or plan.call else None,
        "refusal": None,
    }
    if plan.call:
        function = {"name": plan.call.name, "arguments": "".join(plan.call.pieces)}
        call = {"id": call_id(answer_id), "type": "function", "function": function}
        message["tool_calls"] = [call]
    message["reasoning"] = text_of(plan.seed, 0, plan.reasoning) or None
    return _choice(index, plan, {"message": message})


def _text_choice(index: int, plan: Plan, _answer_id: str) -> dict[str, Any]:
    return _choice(index, plan, {"text": text_of(plan.seed, 0, plan.text)})


def _choice(index: int, plan: Plan, said: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": index,
        **said,
        "logprobs": None,
        "finish_reason": plan.finish_reason,
        "stop_reason": None,
        "token_ids": None,
    }
