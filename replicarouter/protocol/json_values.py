"""Values of a large JSON body, built in steps between which others can run; what is too large is hashed."""

import json
from collections.abc import Generator
from typing import Any

import orjson
from xxhash import xxh3_64, xxh3_64_intdigest

from replicarouter.protocol.json_scan import (
    BadJson,
    Span,
    after_elements,
    after_mark,
    after_space,
    after_string,
    after_value,
    read_name,
)

MOST_AT_ONCE = 2**19
"""Bytes that are parsed in one go."""

MOST_BUILT = 2**22
"""Bytes that are built of one value; images and the like, which are hashed, do not count. A prompt's keys
need half a million characters; what stands behind is left off."""

_AT_FIRST = 2**14
"""Bytes in which the end of a value is looked for at first."""

_LONGEST_LOOK = 64
"""Steps in which the end of a value is looked for; a megabyte of messages takes about twenty."""

_START = 2**19
"""Bytes of a large text that are parsed."""

_LONGEST_CHARACTER = 12
"""Bytes of a character outside the first plane that is written as two escapes."""

_HASHED_A_STEP = 2**22
_BUILT_A_STEP = 2**15
_VALUE_COST = 64
"""To find a value and to call a parser for it takes at least as long as this many bytes of it."""
_CONTAINER_COST = 48
"""The same for a list or an object, which the garbage collector looks at again and again."""
_MOST_NESTED = 5
"""As an image in a conversation is: in the list of messages, a message, its parts, one of them, its URL."""

Built = Generator[None, None, tuple[Any, int]]
"""Builds a value in steps; it returns the value, and where it ends."""


class Opaque:
    """A value that was too large to be built: the hash of its `size` bytes; of a text, its `start` too."""

    __slots__ = ("digest", "size", "start")

    def __init__(self, digest: int, size: int, start: str = "") -> None:
        self.digest = digest
        self.size = size
        self.start = start

    def __repr__(self) -> str:
        return f"Opaque({self.digest:#x}, {self.size})"


class ValueBuilder:
    """Builds one value of `body`, as a parser would: but a text above `MOST_AT_ONCE`, and what is no JSON,
    is an `Opaque`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._built = 0
        self._built_before = 0

    def build(self, span: Span) -> Generator[None, None, Any]:
        """The value that stands there, or its first part once enough has been built. Never raises."""
        try:
            value, _ = yield from self._value(span[0], 0)
        except BadJson:
            value = yield from self._opaque(*span)
        return value

    @property
    def _full(self) -> bool:
        return self._built >= MOST_BUILT

    def _due(self) -> bool:
        """Whether so much was built since the last step that it is the others' turn."""
        if self._built - self._built_before < _BUILT_A_STEP:
            return False
        self._built_before = self._built
        return True

    def _value(self, at: int, nested: int) -> Built:
        body = self._body
        end = yield from _end_of_small(body, at)
        if end:
            return self._parsed(body[at:end]), end
        if body.startswith(b'"', at):
            return (yield from self._text(at))
        if nested < _MOST_NESTED:
            if body.startswith(b"[", at):
                return (yield from self._array(at, nested + 1))
            if body.startswith(b"{", at):
                return (yield from self._object(at, nested + 1))
        end = yield from after_value(body, at)
        return (yield from self._opaque(at, end)), end

    def _array(self, at: int, nested: int) -> Built:
        body = self._body
        values: list[Any] = []
        at = after_space(body, at + 1)
        while not self._full:
            end = after_elements(body, at)
            if end > at:
                several = self._parsed(b"[%b]" % body[at : end - 1])
                values.extend(several if type(several) is list else [several])
                self._built += _CONTAINER_COST * (body.count(b"[", at, end) + body.count(b"{", at, end))
                at = after_space(body, end)
            else:
                value, at = yield from self._value(at, nested)
                values.append(value)
                at = after_space(body, at)
                if body.startswith(b"]", at):
                    return values, at + 1
                if not self._full:
                    at = after_mark(body, b",", at)
            if self._due():
                yield
        return values, at

    def _object(self, at: int, nested: int) -> Built:
        body = self._body
        fields: dict[str, Any] = {}
        at = after_mark(body, b"{", at)
        while not self._full:
            behind = yield from after_string(body, at + 1 if body.startswith(b'"', at) else len(body))
            name = read_name(body[at:behind])
            fields[name], at = yield from self._value(after_mark(body, b":", behind), nested)
            if self._due():
                yield
            at = after_space(body, at)
            if body.startswith(b"}", at):
                return fields, at + 1
            if not self._full:
                at = after_mark(body, b",", at)
        return fields, at

    def _text(self, at: int) -> Built:
        end = yield from after_string(self._body, at + 1)
        opaque = yield from self._opaque(at + 1, end - 1)
        opaque.start = first_text(memoryview(self._body)[at + 1 : end - 1])
        self._built += len(opaque.start)
        return opaque, end

    def _opaque(self, start: int, end: int) -> Generator[None, None, Opaque]:
        hasher, view = xxh3_64(), memoryview(self._body)
        for at in range(start, end, _HASHED_A_STEP):
            hasher.update(view[at : min(at + _HASHED_A_STEP, end)])
            yield
        return Opaque(hasher.intdigest(), end - start)

    def _parsed(self, raw: bytes) -> Any:
        self._built += len(raw) + _VALUE_COST
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return Opaque(xxh3_64_intdigest(raw), len(raw))


def _end_of_small(body: bytes, at: int) -> Generator[None, None, int]:
    """Where the value ends that begins at `at`; 0 if it is too large, or too full of brackets, to be parsed
    in one go."""
    for width in (_AT_FIRST, MOST_AT_ONCE):
        piece = body[at : at + width]
        steps = after_value(piece, 0)
        for _ in range(_LONGEST_LOOK):
            try:
                next(steps)
            except BadJson:
                break
            except StopIteration as done:
                end: int = done.value
                if end < len(piece) or at + width >= len(body):
                    return at + end
                break
            yield
    return 0


def first_text(whole: memoryview) -> str:
    """What a text begins with that stands there; what takes too long to parse is left off."""
    raw = bytes(whole[:_START])
    for end in range(len(raw), max(len(raw) - _LONGEST_CHARACTER, 0), -1):
        try:
            return str(orjson.loads(b'"%b"' % raw[:end]))
        except orjson.JSONDecodeError:
            continue
    return ""
