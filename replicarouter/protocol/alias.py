"""Puts another model's name into a request, and leaves every other byte as it was."""

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote_plus

import orjson

from replicarouter.errors import InvalidRequest
from replicarouter.protocol.form import DISPOSITION, LONGEST_MODEL, names_model

Span = tuple[int, int]

_KEY = b'"model"'
_QUOTE, _BACKSLASH, _OPENING = ord('"'), ord("\\"), b"{["

_MARK = re.compile(rb'["{}\[\]]')
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
_PART_HEAD = re.compile(rb"\r\n((?:[^\r\n]+\r\n){1,64})\r\n")

_CANNOT = "The name of the model in this request body cannot be replaced; send it as plain UTF-8."


def rewrite_model(body: bytes, name: str) -> bytes:
    """Put `name` into the field `model` of a JSON object, which must be valid and have it as a string.

    Where the field is given several times all are changed: which of them counts differs among readers.
    Raises `InvalidRequest` where it cannot be found: JSON may be in UTF-16, too.
    """
    return _replaced(body, _json_spans(body), orjson.dumps(name))


def rewrite_form(body: bytes, name: str) -> bytes:
    """Put `name` into the field `model` of a multipart form; its body may go on behind `body`.

    Raises `InvalidRequest` where there is no such field.
    """
    return _replaced(body, _form_spans(body), name.encode("utf-8", "surrogateescape"))


def rewrite_query(target: str, name: str) -> str:
    """Put `name` into the parameter `model` of a request target's query, as often as it stands there."""
    path, mark, query = target.partition("?")
    value = quote(name, safe="", errors="surrogateescape")
    fields = (f"model={value}" if _is_model(field) else field for field in query.split("&"))
    return f"{path}{mark}{'&'.join(fields)}"


def _is_model(field: str) -> bool:
    return unquote_plus(field.partition("=")[0]) == "model"


def _replaced(body: bytes, spans: Iterable[Span], value: bytes) -> bytes:
    parts = []
    begin = 0
    for start, end in spans:
        parts += (body[begin:start], value)
        begin = end
    if not parts:
        raise InvalidRequest(_CANNOT, param="model")
    return b"".join((*parts, body[begin:]))


def _json_spans(body: bytes) -> Iterator[Span]:
    """Where the values of the outermost object's fields called model stand, with their quotes."""
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


def _string_end(body: bytes, start: int) -> int:
    """Where a string ends whose first character stands at `start`. Long ones seldom hold a quote."""
    quote = body.find(b'"', start)
    if body[quote - 1] != _BACKSLASH:
        return quote + 1
    rest = _STRING_REST.match(body, start)
    return rest.end() if rest is not None else len(body)


def _says_model(string: bytes) -> bool:
    if string == _KEY:
        return True
    return b"\\" in string and json.loads(string) == "model"


def _form_spans(body: bytes) -> Iterator[Span]:
    """Where the values of the form's fields called model stand.

    A form begins with its delimiter, and only what follows one is a head: a file may hold another form.
    """
    delimiter = body[: body.find(b"\r\n")]
    if not delimiter.startswith(b"--"):
        return
    place = 0
    while place >= 0:
        head = _PART_HEAD.match(body, place + len(delimiter))
        following = body.find(b"\r\n" + delimiter, place + len(delimiter))
        disposition = DISPOSITION.search(head[1]) if head is not None else None
        if head is not None and disposition is not None and names_model(disposition[1]):
            if 0 <= following - head.end() <= LONGEST_MODEL:
                yield head.end(), following
        place = following + 2 if following >= 0 else -1
