"""Watches an answer's bytes as they pass: first content, gaps between tokens, usage. Holds nothing up."""

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from replicarouter.cells import Histograms
from replicarouter.clock import Clock
from replicarouter.exchange import UPSTREAM_ERROR, Exchange
from replicarouter.protocol.content import (
    LONGEST_COMMENT,
    begins_answer,
    begins_reasoning,
    declines_in_band,
    ends_in_error,
    find_usage,
    gives_up,
    only_comments,
    says_all,
)
from replicarouter.protocol.response_id import ResponseIdFinder

TAIL_PARTS = 4
"""Reads kept for the look at the end: usage, `[DONE]` and the last chunk may come in one read each."""

_LONE_LINE_END = re.compile(rb"(?:^|\r\n)0*[12][ \t]*(?:;[^\r\n]*)?\r\n\r?\n\Z")
"""A chunk of nothing but a line end: behind its size line it looks like an empty line, and is none."""

LARGE = 16384
"""Bytes at the end of an answer that are looked at."""


class Timings(Protocol):
    """Who takes the times of answers: `gaps` between tokens, a series a replica, and first contents."""

    gaps: Histograms

    def first_content(self, exchange: Exchange) -> None:
        """The first content, reasoning included, was sent on."""

    def first_answer(self, exchange: Exchange) -> None:
        """The first answer text, after reasoning, was sent on."""


def note_usage(exchange: Exchange, tail: bytes) -> None:
    """Look for the tokens that an engine has counted, in the last bytes of its answer."""
    usage = find_usage(tail)
    if usage is not None:
        exchange.prompt_tokens = usage.prompt
        exchange.cached_tokens = usage.cached
        exchange.completion_tokens = usage.completion


class Observer:
    """One answer's watcher. `chunk` is called for every read, so it does next to nothing.

    `settled`: what is still to come has only to be timed and counted, until it ends. `last` to `fourth` are
    the last reads, from the end; an `EventRelay` moves them on by itself.
    """

    __slots__ = (
        "_seeking",
        "_started",
        "_stream",
        "_timings",
        "clock",
        "exchange",
        "fourth",
        "gaps",
        "last",
        "second",
        "settled",
        "third",
    )

    def __init__(self, exchange: Exchange, clock: Clock, timings: Timings, *, stream: bool) -> None:
        self.exchange = exchange
        self.clock = clock
        self._timings = timings
        self.gaps = timings.gaps.of((exchange.replica,))
        self._stream = stream
        self._seeking = stream
        self._started = False
        self.settled = False
        # The last reads, from the end. A deque of them would take 760 bytes.
        self.last = self.second = self.third = self.fourth = b""
        exchange.last_byte_at = exchange.head_at

    def chunk(self, data: bytes) -> None:
        """Note that `data` was passed on."""
        now = self.clock()
        size = len(data)
        exchange = self.exchange
        exchange.bytes_out += size
        if self._started:
            # Histogram.observe, without the call: this happens for every token.
            gap = now - exchange.last_byte_at
            gaps = self.gaps
            gaps.counts[bisect_left(gaps.bounds, gap)] += 1
            gaps.sums[0] += gap
        if size <= LONGEST_COMMENT and self._stream and only_comments(data):
            exchange.note_comment(now)
        exchange.last_byte_at = now
        if self._seeking:
            self._seek(data, now)
        self.fourth = self.third
        self.third = self.second
        self.second = self.last
        self.last = data if size <= LARGE else data[-LARGE:]

    def pause(self) -> None:
        """The client takes nothing now: until `restart_silence` no byte can come."""
        self.exchange.held = True

    def restart_silence(self) -> None:
        """The client's own pause is over: silence of the replica counts from here."""
        self.exchange.held = False
        self.exchange.last_byte_at = self.clock()

    def ends_event(self, *, chunked: bool) -> bool:
        """Whether the last bytes end a whole SSE event (and its chunk), or nothing was sent at all."""
        tail = self._tail()[-64:]
        if chunked:
            tail = tail.removesuffix(b"\r\n")
            if _LONE_LINE_END.search(tail):
                return False
        return not tail or tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))

    def said_all(self) -> bool:
        """Whether its client has been told that the stream is over."""
        return self._stream and says_all(self._tail())

    def end(self) -> None:
        """Look once at the last bytes of a whole answer."""
        exchange = self.exchange
        tail = self._tail()
        note_usage(exchange, tail)
        if self._stream and ends_in_error(tail):
            exchange.outcome = UPSTREAM_ERROR
            exchange.in_band_error = True
            exchange.in_band_busy = declines_in_band(tail)
        elif self._stream and gives_up(tail, empty=not exchange.first_content_at):
            exchange.outcome = UPSTREAM_ERROR
            exchange.given_up = True

    def _tail(self) -> bytes:
        """The last bytes that were passed on."""
        return b"".join((self.fourth, self.third, self.second, self.last))[-LARGE:]

    def _seek(self, data: bytes, now: float) -> None:
        """Look for the first content, and after reasoning for the first answer."""
        exchange = self.exchange
        if begins_answer(data):
            self._seeking = False
            self.settled = True
            exchange.first_answer_at = now
            if exchange.reasoned:
                self._timings.first_answer(exchange)
        elif self._started:
            return
        elif begins_reasoning(data):
            exchange.reasoned = True
        else:
            return
        if not self._started:
            self._started = True
            exchange.first_content_at = now
            self._timings.first_content(exchange)


class StoredResponseObserver(Observer):
    """Also tells `learn` the id of the response that its replica now holds."""

    __slots__ = ("_finder", "_learn")

    def __init__(
        self,
        exchange: Exchange,
        clock: Clock,
        timings: Timings,
        *,
        stream: bool,
        learn: Callable[[str], None],
    ) -> None:
        super().__init__(exchange, clock, timings, stream=stream)
        self._finder = ResponseIdFinder()
        self._learn = learn

    def chunk(self, data: bytes) -> None:
        """Note that `data` was passed on."""
        super().chunk(data)
        response_id = self._finder.feed(data)
        if response_id is not None:
            self._learn(response_id)
