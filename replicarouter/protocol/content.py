"""What the bytes of an answer say in passing: when content begins, what was used. Nothing is parsed.

A quotation mark inside a JSON string is always escaped, so `"usage":{` or `"content":"` in the bytes
is a real key, never text that a model wrote.
"""

import re
from typing import Any, NamedTuple

import orjson

_ANSWER_KEYS = (b'"content":', b'"text":', b'"arguments":', b'"partial_json":')
_REASONING_KEYS = (b'"reasoning":', b'"reasoning_content":', b'"thinking":')
_EVENT = b'"response.'
_ANSWER_EVENTS = (b'"response.output_text.delta"', b'"response.function_call_arguments.delta"')
_REASONING_EVENTS = (b'"response.reasoning_text.delta"',)

_IN_BAND_ERROR = re.compile(rb'^(?:data:\s*\{\s*"error":\s*[{"]|event:\s*error\s*$)', re.MULTILINE)
_BUSY_CODE = re.compile(rb'^data:\s*\{\s*"error":\s*\{[^\n]*"code":\s*(?:503|429)\b', re.MULTILINE)
_ABORT = b'"abort"'
_ABORTED = re.compile(rb'"finish_reason":\s*"abort"')
_FINISHED = re.compile(rb'"finish_reason":\s*"')
_DONE = b"data: [DONE]"
_COMMENTS = re.compile(rb"(?:(?:[0-9A-Fa-f]++\r\n)?(?::[^\r\n]*+\r?\n)++(?:\r?\n)*+)++")

LONGEST_COMMENT = 64
"""Bytes of a read that is worth a look whether it holds comments only."""


class Usage(NamedTuple):
    """Tokens of one answer, as its engine counted them; `cached` None when it does not say."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None


def begins_answer(data: bytes) -> bool:
    """Whether these bytes carry answer text (or a tool call's arguments)."""
    return _carries(data, _ANSWER_KEYS, _ANSWER_EVENTS)


def begins_reasoning(data: bytes) -> bool:
    """Whether these bytes carry reasoning text, where the engine keeps it apart."""
    return _carries(data, _REASONING_KEYS, _REASONING_EVENTS)


def find_usage(tail: bytes) -> Usage | None:
    """The last usage record in the last bytes of an answer."""
    start = tail.rfind(b'"usage":')
    start = tail.find(b"{", start, start + 10) if start >= 0 else -1
    fields = _object(tail, start) if start >= 0 else None
    if fields is None:
        return None
    prompt, completion = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if type(prompt) is int and type(completion) is int and "cache_read_input_tokens" not in fields:
        # As nearly all engines write it, without the calls below.
        details = fields.get("prompt_tokens_details") or fields.get("input_tokens_details")
        return Usage(prompt, completion, _counted(details, "cached_tokens") if details else None)
    details = fields.get("prompt_tokens_details") or fields.get("input_tokens_details") or {}
    cached = _counted(fields, "cache_read_input_tokens")
    return Usage(
        prompt=_count(fields, "prompt_tokens", "input_tokens"),
        completion=_count(fields, "completion_tokens", "output_tokens"),
        cached=_counted(details, "cached_tokens") if cached is None else cached,
    )


def _object(data: bytes, start: int) -> dict[str, Any] | None:
    """The JSON object that begins at `start`; None when it is broken or not whole."""
    end = data.find(b"}", start)
    while end >= 0:
        text = data[start : end + 1]
        if text.count(b"{") == text.count(b"}"):
            try:
                fields = orjson.loads(text)
            except orjson.JSONDecodeError:
                return None
            return fields if isinstance(fields, dict) else None
        end = data.find(b"}", end + 1)
    return None


def _count(fields: object, *names: str) -> int:
    """The first of these fields that holds a number; 0 without one."""
    return _counted(fields, *names) or 0


def _counted(fields: object, *names: str) -> int | None:
    """The first of these fields that holds a number."""
    if isinstance(fields, dict):
        for name in names:
            value = fields.get(name)
            if type(value) is int:
                return value
    return None


def declines_in_band(tail: bytes) -> bool:
    """Whether the error that ends an event stream says that the engine had no room: it looks a second time
    when its 200 is already out."""
    return _BUSY_CODE.search(tail) is not None


def only_comments(data: bytes) -> bool:
    """Whether a read of an event stream, chunked or not, holds nothing but comments."""
    # The end of nearly every stream is asked this, and most of them need no expression for the answer.
    return (data[:1] == b":" or b"\n:" in data) and _COMMENTS.fullmatch(data) is not None


def says_all(tail: bytes) -> bool:
    """Whether an event stream's last bytes tell a client that nothing of interest follows."""
    return _DONE in tail[-64:] or ends_in_error(tail)


def gives_up(tail: bytes, *, empty: bool) -> bool:
    """Whether an event stream ends in order though its engine gave the request up, as vLLM does when it is
    terminated: with the finish reason `abort`, or, `empty` of any content, with none at all."""
    if _ABORT in tail and _ABORTED.search(tail) is not None:
        return True
    return empty and _DONE in tail and b'"choices":' in tail and _FINISHED.search(tail) is None


def ends_in_error(tail: bytes) -> bool:
    """Whether an event stream's last bytes hold an error that the engine put in band."""
    if b'"error":' not in tail and b"event:" not in tail:
        return False
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
