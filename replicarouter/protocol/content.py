"""What the bytes of an answer say in passing: when content begins, what was used. Nothing is parsed.

A quotation mark inside a JSON string is always escaped, so `"usage":{` or `"content":"` in the bytes
is a real key, never text that a model wrote.
"""

import re
from dataclasses import dataclass

_ANSWER_KEYS = (b'"content":', b'"text":', b'"arguments":')
_REASONING_KEYS = (b'"reasoning":', b'"reasoning_content":', b'"thinking":')
_EVENT = b'"response.'
_ANSWER_EVENTS = (b'"response.output_text.delta"', b'"response.function_call_arguments.delta"')
_REASONING_EVENTS = (b'"response.reasoning_text.delta"',)

_NUMBER = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens|cache_read_input_tokens)"'
    rb":\s*([0-9]{1,12})"
)
LONGEST_USAGE = 1024
"""Bytes of a usage record that are looked at; vLLM's with all details takes about 300."""

_KIND = {
    b"prompt_tokens": "prompt",
    b"input_tokens": "prompt",
    b"completion_tokens": "completion",
    b"output_tokens": "completion",
    b"cached_tokens": "cached",
    b"cache_read_input_tokens": "cached",
}
_IN_BAND_ERROR = re.compile(rb'(?:^|\n)data:\s*\{\s*"error":\s*[{"]|(?:^|\n)event:\s*error\s*\n')


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, as its engine counted them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


def begins_answer(data: bytes) -> bool:
    """Whether these bytes carry answer text (or a tool call's arguments)."""
    return _carries(data, _ANSWER_KEYS, _ANSWER_EVENTS)


def begins_reasoning(data: bytes) -> bool:
    """Whether these bytes carry reasoning text, where the engine keeps it apart."""
    return _carries(data, _REASONING_KEYS, _REASONING_EVENTS)


def find_usage(tail: bytes) -> Usage | None:
    """The last usage record in the last bytes of an answer."""
    start = tail.rfind(b'"usage":')
    if start < 0 or tail[start + 8 : start + 10].lstrip()[:1] != b"{":
        return None
    found: dict[str, int] = {}
    for key, number in _NUMBER.findall(tail, start, start + LONGEST_USAGE):
        found.setdefault(_KIND[key], int(number))
    return Usage(found.get("prompt", 0), found.get("completion", 0), found.get("cached", 0))


def ends_in_error(tail: bytes) -> bool:
    """Whether an event stream's last bytes hold an error that the engine put in band."""
    return _IN_BAND_ERROR.search(tail) is not None


def _carries(data: bytes, keys: tuple[bytes, ...], events: tuple[bytes, ...]) -> bool:
    """Whether one of the keys opens a string that is not empty, or one of the events is there."""
    for key in keys:
        at = data.find(key)
        while at >= 0:
            at += len(key)
            value = data[at : at + 3].lstrip()
            if value[:1] == b'"' and value[1:2] not in (b'"', b""):
                return True
            at = data.find(key, at)
    return _EVENT in data and any(event in data for event in events)
