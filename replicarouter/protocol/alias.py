"""Puts another model's name into a request, and leaves every other byte as it was."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote_plus

import orjson

from replicarouter.errors import InvalidRequest
from replicarouter.protocol.json_scan import Span

_KEY = b'"model"'
_QUOTE, _BACKSLASH, _OPENING = ord('"'), ord("\\"), b"{["

_MARK = re.compile(rb'["{}\[\]]')
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")

_CANNOT = "The name of the model in this request body cannot be replaced; send it as plain UTF-8."


def json_name(name: str) -> bytes:
    """A model's name as the value of a JSON field."""
    return orjson.dumps(name)


def form_name(name: str) -> bytes:
    """A model's name as the value of a form's field."""
    return name.encode("utf-8", "surrogateescape")


def rewrite_model(body: bytes, name: str) -> bytes:
    """Put `name` into the field `model` of a JSON object, which must be valid and have it as a string.

    Where the field is given several times all are changed: which of them counts differs among readers.
    Looks no further than where the last of them can be. Raises `InvalidRequest` where it cannot be
    found: JSON may be in UTF-16, too.
    """
    value = json_name(name)
    parts: list[bytes] = []
    begin = 0
    for start, end in _spans(body):
        parts += (body[begin:start], value)
        begin = end
    if not parts:
        raise InvalidRequest(_CANNOT, param="model")
    return b"".join((*parts, body[begin:]))


def patched(piece: bytes, at: int, span: Span, value: bytes) -> bytes:
    """A piece of a body that begins at `at`, with `value` for what of it stands at `span`."""
    size = len(piece)
    start, end = span[0] - at, span[1] - at
    before, behind = piece[: min(max(start, 0), size)], piece[min(max(end, 0), size) :]
    return before + value + behind if 0 <= start < size else before + behind


def rewrite_query(target: str, name: str) -> str:
    """Put `name` into the parameter `model` of a request target's query, as often as it stands there."""
    path, mark, query = target.partition("?")
    value = quote(name, safe="", errors="surrogateescape")
    fields = (f"model={value}" if _is_model(field) else field for field in query.split("&"))
    return f"{path}{mark}{'&'.join(fields)}"


def _is_model(field: str) -> bool:
    return unquote_plus(field.partition("=")[0]) == "model"


def _spans(body: bytes) -> Iterator[Span]:
    """Where the values of the outermost object's fields called model stand, with their quotes."""
    only = _only_span(body)
    if only is not None:
        yield only
        return
    # A name can be written with escapes (\u006d for m); only then has the rest to be looked through.
    last = len(body) if b"\\u00" in body else body.rfind(_KEY)
    depth = place = 0
    while place <= last and (mark := _MARK.search(body, place)) is not None:
        place = mark.end()
        character = body[place - 1]
        if character != _QUOTE:
            depth += 1 if character in _OPENING else -1
            continue
        start, place = place - 1, _string_end(body, place)
        if depth != 1 or not _says_model(body[start:place]):
            continue
        colon = _COLON.match(body, place)
        if colon is not None and body[colon.end()] == _QUOTE:
            place = _string_end(body, colon.end() + 1)
            yield colon.end(), place


def _only_span(body: bytes) -> Span | None:
    """The same where the word stands once in the body, and plainly as the name of a field of its outermost
    object: nothing is opened before it, or nothing else is closed behind it."""
    at = body.find(_KEY)
    if at < 0 or body.find(_KEY, at + 1) >= 0 or b"\\u00" in body:
        return None
    colon = _COLON.match(body, at + len(_KEY))
    if colon is None or body[colon.end()] != _QUOTE:
        return None
    span = colon.end(), _string_end(body, colon.end() + 1)
    first = body.count(b"{", 0, at) == 1 and body.find(b"[", 0, at) < 0
    last = first or (body.count(b"}", span[1]) == 1 and body.find(b"]", span[1]) < 0)
    return span if last else None


def _string_end(body: bytes, start: int) -> int:
    """Where a string ends whose first character stands at `start`. Long ones seldom hold a quote."""
    end = body.find(b'"', start)
    if body[end - 1] != _BACKSLASH:
        return end + 1
    rest = _STRING_REST.match(body, start)
    return rest.end() if rest is not None else len(body)


def _says_model(string: bytes) -> bool:
    if string == _KEY:
        return True
    return b"\\" in string and json.loads(string) == "model"
