"""Which trace a request belongs to: W3C Trace Context (https://www.w3.org/TR/trace-context/), its fields
`traceparent` and `tracestate`."""

import re
from random import Random
from typing import NamedTuple

from multidict import MultiMapping, istr

TRACEPARENT = istr("traceparent")
TRACESTATE = istr("tracestate")

SAMPLED = 0x01
RANDOM = 0x02
"""Flags; all others mean nothing yet and are not passed on in a field of ours."""

IN_A_ROW = 32
"""New traces that are made at a time: to make more would hold up the tokens of others."""

_NONE: frozenset[bytes] = frozenset()
_PARENT = frozenset((b"traceparent",))
_BOTH = frozenset((b"traceparent", b"tracestate"))

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_FORBIDDEN = "ff"
_ONLY_VERSION = "00"
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16

_RATIO_BITS = (1 << 56) - 1
"""The right-most seven bytes of a trace id are random, so that every party can draw by them."""


class Parent(NamedTuple):
    """What a valid `traceparent` says: the trace, the span that asks, and flags."""

    trace_id: str
    span_id: str
    flags: int


def parse(value: str) -> Parent | None:
    """Read a `traceparent`; None for one that is not valid. Of later versions than 00 what they have in
    common is read, as the standard asks."""
    match = _FORM.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _FORBIDDEN or (version == _ONLY_VERSION and more is not None):
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return Parent(trace_id, span_id, int(flags, 16))


class Trace:
    """The trace of one request.

    `line` is the field line of ours that goes to its replica, if any, and `replaces` names the fields it
    takes the place of. With `recorded`, `span_id` is a span of the router, under `parent_id` if there is one.
    """

    __slots__ = ("line", "parent_id", "recorded", "replaces", "span_id", "trace_id")

    def __init__(
        self,
        trace_id: str,
        span_id: str = "",
        parent_id: str = "",
        line: bytes = b"",
        replaces: frozenset[bytes] = _NONE,
        recorded: bool = False,
    ) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_id = parent_id
        self.line = line
        self.replaces = replaces
        self.recorded = recorded


UNTRACED = Trace("")
"""Of requests that belong to none: what they carry passes on as it is."""


class Tracing:
    """Finds or starts the traces of requests. `start`: one without a valid `traceparent` gets one, sampled
    with probability `ratio`. `record`: the router makes spans of its own, so that replicas see them as
    parents. `start` and `ratio` may be set at any time.
    """

    __slots__ = ("_below", "_made", "_random", "_record", "start")

    def __init__(self, random: Random, *, start: bool, ratio: float, record: bool) -> None:
        self._random = random
        self._record = record
        self._made: list[Trace] = []
        self.start = start
        self.ratio = ratio

    @property
    def ratio(self) -> float:
        """The share of the traces begun here that is sampled."""
        return self._below / (_RATIO_BITS + 1)

    @ratio.setter
    def ratio(self, share: float) -> None:
        self._below = round(share * (_RATIO_BITS + 1))
        self._made.clear()

    def of(self, headers: MultiMapping[str]) -> Trace:
        """The trace of a request with these header fields.

        A valid parent is followed, and passes unchanged unless a span of ours comes between: that is so
        when spans are made and the sender samples this trace. Several `traceparent` are as bad as none.
        """
        sent = headers.getall(TRACEPARENT, None) if headers else None
        if sent is None:
            if not self.start:
                return UNTRACED
            return self._begin(_BOTH if headers and TRACESTATE in headers else _NONE)
        parent = parse(sent[0]) if len(sent) == 1 else None
        if parent is not None:
            return self._follow(parent)
        return self._begin(_BOTH) if self.start else UNTRACED

    def _follow(self, parent: Parent) -> Trace:
        trace_id = parent.trace_id
        if not self._record or not parent.flags & SAMPLED:
            return Trace(trace_id)
        span_id = f"{self._random.getrandbits(64) or 1:016x}"
        line = _field(trace_id, span_id, parent.flags & (SAMPLED | RANDOM))
        return Trace(trace_id, span_id, parent.span_id, line, _PARENT, True)

    def _begin(self, replaces: frozenset[bytes]) -> Trace:
        if replaces:
            return self._new(replaces)
        # Nearly every request comes here, and alone, long after the one before: what makes a trace is found
        # in the processor's caches when several are made in a row.
        if not self._made:
            self._made = [self._new(_NONE) for _ in range(IN_A_ROW)]
        return self._made.pop()

    def _new(self, replaces: frozenset[bytes]) -> Trace:
        ids = f"{self._random.getrandbits(192):048x}"
        trace_id, span_id = ids[:32], ids[32:]
        sampled = self._below > _RATIO_BITS or int(trace_id[-14:], 16) < self._below
        line = f"traceparent: 00-{trace_id}-{span_id}-{'01' if sampled else '00'}\r\n".encode()
        return Trace(trace_id, span_id, "", line, replaces, sampled and self._record)


def _field(trace_id: str, span_id: str, flags: int) -> bytes:
    return f"traceparent: 00-{trace_id}-{span_id}-{flags:02x}\r\n".encode()
