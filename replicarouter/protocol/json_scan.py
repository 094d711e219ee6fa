"""Finds fields of a large JSON object without building it, in steps so short that others can run between.

It follows nesting and strings; whether what it passes over is valid is for the engine to judge.
"""

import re
from collections.abc import Collection, Generator

import orjson

Span = tuple[int, int]
"""Where a value begins and ends in the body."""

Steps = Generator[None, None, int]
"""A part of the scan; it returns where the next part begins."""

WINDOW = 65536
"""Bytes that one expression may look at in one go: about half a millisecond."""

_BRACKET_COST = 64
"""A bracket takes about as long as this many bytes of content."""

_FIELDS_A_STEP = 256
_LONGEST_NAME = 256
"""Bytes; a longer name is none that anybody asks for."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _BACKSLASH = b'"\\'
_OPENING, _CLOSING = frozenset(b"{["), frozenset(b"}]")

_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb'[^\s"{}\[\],:]++')
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_OPENINGS = re.compile(rb"[\[{ \t\n\r]++")
_CLOSINGS = re.compile(rb"[\]} \t\n\r]++")
"""Brackets in a row: of deep nesting there are many."""

_STRING = rb'"[^"\\]{0,4096}+(?:\\.[^"\\]{0,4096}+){0,64}+"'
"""Not of any length: beyond some, to look for the next quote is faster than an expression."""

_FLAT = rb'[^"{}\[\]]++|' + _STRING
_LEAF = rb"[\[{](?:" + _FLAT + rb")*+[\]}]"
_SHALLOW = rb"[\[{](?:" + _FLAT + rb"|" + _LEAF + rb")*+[\]}]"
_DEEP = rb"[\[{](?:" + _FLAT + rb"|" + _SHALLOW + rb")*+[\]}]"
_CONTENT = re.compile(rb"(?:" + _FLAT + rb"|" + _SHALLOW + rb")*+", re.DOTALL)
"""What stands in an array or object: values, and what is nested at most two deep, as in most messages."""

_VALUE = rb'[^\s"{}\[\],:]++|' + _STRING + rb"|" + _DEEP
_ELEMENTS = re.compile(rb"(?:[ \t\n\r]*+(?:" + _VALUE + rb")[ \t\n\r]*+,)*+", re.DOTALL)
"""Elements of an array, each with the comma behind it."""


class BadJson(Exception):
    """This is no JSON object."""


def scan_object(
    body: bytes, names: Collection[str], found: dict[str, Span] | None = None
) -> Generator[None, None, dict[str, Span]]:
    """Find the values of the top-level fields called `names`; of a repeated one the last, as parsers do.

    `found` is filled in meanwhile. Raises `BadJson` when brackets, strings or separators do not add up to one
    object.
    """
    found = {} if found is None else found
    fields = 0
    at = after_mark(body, b"{", len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0)
    more = not body.startswith(b"}", at)
    while more:
        behind = yield from after_string(body, at + 1 if body.startswith(b'"', at) else len(body))
        name = read_name(body[at:behind])
        start = after_mark(body, b":", behind)
        end = yield from after_value(body, start)
        if name in names:
            found[name] = start, end
        fields += 1
        if fields % _FIELDS_A_STEP == 0:
            yield
        at = after_space(body, end)
        more = not body.startswith(b"}", at)
        if more:
            at = after_mark(body, b",", at)
    if after_space(body, at + 1) != len(body):
        raise BadJson
    return found


def after_elements(body: bytes, at: int) -> int:
    """Go behind the comma of the last element of an array that ends, as those before it, within the window;
    `at` if there is none, or if it is not the usual kind."""
    return _end(_ELEMENTS, body, at)


def after_value(body: bytes, at: int) -> Steps:
    """Go behind the value that begins at `at`. Raises `BadJson`."""
    first = body[at : at + 1]
    if first == b'"':
        return (yield from after_string(body, at + 1))
    if first in (b"{", b"["):
        return (yield from _after_nested(body, at + 1))
    scalar = _SCALAR.match(body, at)
    if scalar is None:
        raise BadJson
    return scalar.end()


def after_string(body: bytes, at: int) -> Steps:
    """Go from behind the opening quote to behind the closing one. Raises `BadJson`.

    Most strings end at the first quote there is, which is found at the speed of memory.
    """
    while True:
        quote = body.find(b'"', at)
        if quote < 0:
            raise BadJson
        if body[quote - 1] != _BACKSLASH:
            return quote + 1
        backslashes = yield from _backslashes(body, at, quote)
        if backslashes % 2 == 0:
            return quote + 1
        yield
        # Where one quote is escaped, more are.
        at = _end(_IN_STRING, body, quote + 1)


def _backslashes(body: bytes, start: int, quote: int) -> Steps:
    """How many stand in a row before the quote, back to `start`."""
    begin, width = quote, 64
    while begin > start:
        low = max(start, begin - width)
        kept = len(body[low:begin].rstrip(b"\\"))
        begin = low + kept
        if kept:
            break
        width = WINDOW
        yield
    return quote - begin


def _after_nested(body: bytes, at: int) -> Steps:
    """Go from behind an opening bracket to behind the one that closes it."""
    depth, work = 1, 0
    while depth:
        start, at = at, _end(_CONTENT, body, at)
        byte = body[at] if at < len(body) else None
        if byte is None:
            raise BadJson
        if byte in _OPENING:
            run = at
            at = _end(_OPENINGS, body, at)
            depth += body.count(b"[", run, at) + body.count(b"{", run, at)
        elif byte in _CLOSING:
            run = _end(_CLOSINGS, body, at)
            count = body.count(b"]", at, run) + body.count(b"}", at, run)
            if count < depth:
                depth -= count
                at = run
            while depth and at < run:
                depth -= body[at] in _CLOSING
                at += 1
        elif byte == _QUOTE:
            # A string that reaches over the edge of the window.
            at = yield from after_string(body, at + 1)
        work += _BRACKET_COST + min(at - start, WINDOW)
        if work > WINDOW:
            work = 0
            yield
    return at


def read_name(quoted: bytes) -> str:
    """The name as a parser reads it; nothing for one that is too long or broken to be asked for."""
    if len(quoted) > _LONGEST_NAME:
        return ""
    try:
        return str(orjson.loads(quoted))
    except orjson.JSONDecodeError:
        return ""


def after_mark(body: bytes, mark: bytes, at: int) -> int:
    """The next thing behind `mark`, which must come next. Raises `BadJson`."""
    at = after_space(body, at)
    if not body.startswith(mark, at):
        raise BadJson
    return after_space(body, at + 1)


def after_space(body: bytes, at: int) -> int:
    """Where the next thing begins."""
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _end(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    """Where a match of `pattern` ends that begins at `at` and goes no further than the window."""
    match = pattern.match(body, at, at + WINDOW)
    return match.end() if match else at
