"""Chat requests, and asking them at a door."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from replicarouter.acceptance.answers import Answer, read_stream, read_whole
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.errors import Refused
from replicarouter.acceptance.prompts import Message

CHAT = "/v1/chat/completions"

THINKING = "chat_template_kwargs"
"""The field whose `enable_thinking` switches reasoning where a template knows it: vLLM, SGLang, llama.cpp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One chat request at temperature 0. `thinking` None leaves it to the model's template; `more` are
    fields as they stand in the body."""

    model: str
    messages: Sequence[Message]
    max_tokens: int
    thinking: bool | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def body(self, *, stream: bool) -> bytes:
        """The JSON to send; a stream is asked for its usage."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "seed": 0,
            **self.more,
        }
        if self.thinking is not None:
            fields[THINKING] = {"enable_thinking": self.thinking}
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return orjson.dumps(fields)


async def ask(
    door: Door, question: Question, *, stream: bool = False, headers: Mapping[str, str] | None = None
) -> Answer:
    """Ask and read the answer; raises `CheckError` when there is none that can be read.

    Engines that do not know the switch of thinking may refuse it; they are asked once more without.
    """
    try:
        return await _asked(door, question, stream, headers)
    except Refused as refusal:
        if question.thinking is None or refusal.status not in {400, 422}:
            raise
    return await _asked(door, replace(question, thinking=None), stream, headers)


async def _asked(door: Door, question: Question, stream: bool, headers: Mapping[str, str] | None) -> Answer:
    door.meter.requests += 1
    body = question.body(stream=stream)
    if stream:
        answer = read_stream(await door.stream(CHAT, body, headers))
    else:
        answer = read_whole(await door.post(CHAT, body, headers))
    if answer.usage is not None:
        door.meter.prompt_tokens += answer.usage.prompt
        door.meter.completion_tokens += answer.usage.completion
    return answer
