"""Requests of every shape, and what two answers to one of them must have in common."""

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.real_engine.rig import CONTEXT, MODEL

MANY_BYTES = "Zażółć gęślą jaźń, 日本語 🙂 👩‍👩‍👧"
"""Two, three and four bytes a character, and one sign joined from three; the tokenizer splits them all."""

QUESTION = [{"role": "user", "content": "Tell me about lists."}]
WEATHER = {
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
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@dataclass(frozen=True, slots=True)
class Sample:
    """A request by its path and body, and the status that answers it."""

    path: str
    body: dict[str, Any]
    status: int = 200

    @property
    def raw(self) -> bytes:
        """The body as sent."""
        return json.dumps(self.body, ensure_ascii=False).encode()


def chat(*, status: int = 200, **fields: Any) -> Sample:
    """A chat request whose answer is the same every time."""
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 0, **fields}
    return Sample("/v1/chat/completions", body, status)


def _post(path: str, status: int = 200, **fields: Any) -> Sample:
    return Sample(path, {"model": MODEL, **fields}, status)


TOO_LONG = [{"role": "user", "content": "word " * CONTEXT}]
SAMPLES = {
    "chat": chat(),
    "chat stream": chat(stream=True),
    "chat stream with usage": chat(stream=True, stream_options={"include_usage": True}),
    "chat with logprobs": chat(logprobs=True, top_logprobs=2),
    "two choices": chat(n=2, temperature=0.8, seed=1),
    "required tool": chat(tools=[WEATHER], tool_choice="required", max_tokens=200),
    "named tool": chat(tools=[WEATHER], tool_choice=NAMED, max_tokens=200),
    "required tool stream": chat(tools=[WEATHER], tool_choice="required", max_tokens=200, stream=True),
    "named tool stream": chat(tools=[WEATHER], tool_choice=NAMED, max_tokens=200, stream=True),
    "many bytes": chat(structured_outputs={"choice": [MANY_BYTES]}, max_tokens=200),
    "many bytes stream": chat(structured_outputs={"choice": [MANY_BYTES]}, max_tokens=200, stream=True),
    "no model named": Sample(
        "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 4, "temperature": 0}
    ),
    "completion": _post("/v1/completions", prompt=MANY_BYTES, echo=True, max_tokens=8, temperature=0),
    "completion stream": _post(
        "/v1/completions", prompt="The list", max_tokens=24, temperature=0, stream=True, ignore_eos=True
    ),
    "response": _post("/v1/responses", input="Tell me about lists.", max_output_tokens=24, temperature=0),
    "response stream": _post(
        "/v1/responses", input="Tell me about lists.", max_output_tokens=24, temperature=0, stream=True
    ),
    "message": _post("/v1/messages", messages=QUESTION, max_tokens=24, temperature=0),
    "message stream": _post("/v1/messages", messages=QUESTION, max_tokens=24, temperature=0, stream=True),
    "tokenize": _post("/tokenize", prompt=MANY_BYTES),
    "detokenize": _post("/detokenize", tokens=[100, 200, 300]),
    "count tokens": _post("/v1/messages/count_tokens", messages=QUESTION),
    "prompt too long": chat(messages=TOO_LONG, status=400),
    "prompt too long, stream": chat(messages=TOO_LONG, stream=True, status=400),
    "wrong type": chat(temperature="hot", status=400),
    "no choices": chat(n=0, status=400),
    "embeddings of a chat model": _post("/v1/embeddings", 404, input="list"),
    "score of a chat model": _post("/v1/score", 404, text_1="list", text_2="tuple"),
}

_TIMES = re.compile(rb'"(created|created_at|completed_at)":[0-9.]+')
_IDS = re.compile(rb'"(chatcmpl-tool-|cmpl-|resp_|msg_|call_|fc_|rs_)[0-9a-f]{8,}"')


def but_for_ids_and_times(body: bytes) -> bytes:
    """The body with the same id and the same time everywhere."""
    return _IDS.sub(rb'"\1"', _TIMES.sub(rb'"\1":0', body))


PIECES = frozenset({"content", "text", "delta", "arguments"})
"""Names under which streams carry a piece of the answer as a string."""


@dataclass(frozen=True, slots=True)
class Essence:
    """A stream without the accident of how many tokens shared an event.

    vLLM puts tokens that came out while its server was busy into one event. `frames` are the events without
    the pieces of text, where one that repeats its predecessor is left out; `text` is all pieces.
    """

    frames: tuple[str, ...]
    text: str


def essence(body: bytes) -> Essence:
    """What two streamed answers to one request must have in common."""
    frames: list[str] = []
    text: list[str] = []
    for event in but_for_ids_and_times(body).decode().split("\n\n"):
        kind, _, data = event.rpartition("data: ")
        document = json.loads(data) if data.startswith("{") else data
        frame = kind + json.dumps(_without_pieces(document, text))
        if not frames or frames[-1] != frame:
            frames.append(frame)
    return Essence(tuple(frames), "".join(text))


def _without_pieces(value: Any, pieces: list[str]) -> Any:
    if isinstance(value, list):
        return [_without_pieces(one, pieces) for one in value]
    if not isinstance(value, dict):
        return value
    rest = {}
    for name, inner in value.items():
        if name in PIECES and isinstance(inner, str):
            pieces.append(inner)
        elif name != "sequence_number":
            rest[name] = _without_pieces(inner, pieces)
    return rest
