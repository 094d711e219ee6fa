"""One line of a trace: its fields, and what is wrong with them."""

from dataclasses import dataclass
from typing import Any

import orjson

TOKEN_CHARACTERS = 4
"""Characters of English that one token is taken for, where a trace has text."""

DEFAULT_OUTPUT_TOKENS = 128
"""Tokens of an answer where the trace does not say."""

_INPUTS = ("input_length", "text_input", "messages")


class BadLine(ValueError):
    """A line is no request; the message says what was expected."""


@dataclass(slots=True, eq=False)
class Line:
    """One request as the trace has it; times are in milliseconds.

    `input_tokens` and `hash_ids` or `text` are of its prompt; `added`: in a session, only of what this
    turn adds to it, as AIPerf has it for all but whole `messages`.
    """

    input_tokens: int
    output_tokens: int
    hash_ids: list[int] | None = None
    text: bytes | None = None
    timestamp: float | None = None
    delay: float | None = None
    session: str | None = None
    added: bool = True


def read_line(text: bytes) -> Line:
    """Read one JSON object; fields that are not known are passed over. Raises `BadLine`.

    The formats: Mooncake's FAST'25 traces; AIPerf's documents on trace replay and its model MooncakeTrace
    (`input_length`, `text_input` or `messages`, one of them; `delay` in milliseconds).
    """
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadLine(f"no JSON object ({error})") from None
    if not isinstance(fields, dict):
        raise BadLine("no JSON object")
    given = [name for name in _INPUTS if fields.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise BadLine(f"one of {', '.join(_INPUTS)} is needed; found {found}")
    line = Line(0, DEFAULT_OUTPUT_TOKENS)
    _READ[given[0]](line, fields)
    if fields.get("output_length") is not None:
        line.output_tokens = max(1, _whole(fields, "output_length"))
    line.timestamp = _milliseconds(fields, "timestamp")
    line.delay = _milliseconds(fields, "delay")
    if fields.get("session_id") is not None:
        line.session = str(fields["session_id"])
    return line


def _by_length(line: Line, fields: dict[str, Any]) -> None:
    line.input_tokens = max(1, _whole(fields, "input_length"))
    ids = fields.get("hash_ids")
    if ids is None:
        return
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise BadLine("hash_ids must be a list of whole numbers")
    line.hash_ids = ids


def _by_text(line: Line, fields: dict[str, Any]) -> None:
    text = fields["text_input"]
    if not isinstance(text, str):
        raise BadLine("text_input must be text")
    _take_text(line, text.encode("utf-8", "surrogatepass"), len(text))


def _by_messages(line: Line, fields: dict[str, Any]) -> None:
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise BadLine("messages must be a list with at least one message")
    text = orjson.dumps(fields.get("tools") or []) + b"".join(orjson.dumps(one) for one in messages)
    _take_text(line, text, len(text))
    line.added = fields.get("message_mode") == "delta"


def _take_text(line: Line, text: bytes, characters: int) -> None:
    line.text = text
    line.input_tokens = max(1, -(-characters // TOKEN_CHARACTERS))


_READ = {"input_length": _by_length, "text_input": _by_text, "messages": _by_messages}


def _whole(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or value < 0:
        raise BadLine(f"{name} must be a whole number, 0 or more; found {value!r:.40}")
    return value


def _milliseconds(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise BadLine(f"{name} must be milliseconds, 0 or more; found {value!r:.40}")
    return float(value)
