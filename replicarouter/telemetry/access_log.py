"""One log line for each exchange: who asked for what, who answered, how long what took, how it ended. No
prompt, no key."""

import logging
import re
from typing import Any

from xxhash import xxh3_64_intdigest

from replicarouter.clock import CallLater, Clock
from replicarouter.exchange import OK, Exchange
from replicarouter.telemetry.logs import FactsRecord, LineFormatter, LineHandler
from replicarouter.words import Written

log = logging.getLogger("replicarouter.access")
_root = log.root

EVENT = "request"

LONGEST = 200
"""Characters of a name that a line takes at most; clients write some of them, and engines others."""

LONGEST_ASKED = 100
"""The same of what was asked for under a name that the router does not know."""

_ALL = 2**64

MOST_TEMPLATES = 2048
"""Templates that are kept, and as many senders."""

WRITE_AFTER = 0.1
"""Seconds after which a success is written out, with all that ended meanwhile: the code for one alone would
have left the processor's caches since the last."""

MOST_KEPT = 32
"""Successes that wait to be written: to write more in a row would hold up the tokens of others."""

PARTS = 10_000
"""Of a second: to so many the times are rounded."""

_VARIABLE = (
    *("request_id", "caller", "seconds", "receive", "queue", "connect", "head", "stream", "first_content"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "bytes_in", "bytes_out", "trace_id"),
)
"""What a template leaves open besides the time, in the order of a line; `peer` belongs to `caller`."""

_LEFT_OUT = "%.0s"
"""Takes a value and writes nothing."""

_plain = re.compile(r"[!#-\[\]-~]{1,200}").fullmatch
"""Of an id that needs no quotes and no escapes in any form of a line."""

Kind = tuple[str | int | bool, ...]
"""What decides of a template."""


class AccessLog:
    """Writes the lines. Of those about successes it writes the share `sample`, which may be set at any time;
    by which id a request goes decides whether it is among them, wherever it is logged. `wall` gives seconds
    since 1970.

    With `later` the lines of successes wait a little for others; then `write_out` must be called in the end.
    """

    def __init__(self, sample: float, wall: Clock) -> None:
        self.sample = sample
        self.later: CallLater | None = None
        self._wall = wall
        self._kept: list[tuple[Exchange, float]] = []
        self._due = False
        self._handlers: list[logging.Handler] = []
        self._ready: tuple[LineHandler, AccessLines] | None = None

    @property
    def sample(self) -> float:
        """The share of successes that get a line."""
        return self._below / _ALL

    @sample.setter
    def sample(self, share: float) -> None:
        self._below = round(share * _ALL)

    def observe(self, exchange: Exchange) -> None:
        """Log an ended exchange."""
        if not log.isEnabledFor(logging.INFO):
            return
        success = exchange.outcome == OK
        if success and self._below < _ALL and self._left_out(exchange):
            return
        at = self._wall()
        if not self._writes_lines():
            self.write_out()
            self._handle(exchange, at)
            return
        kept = self._kept
        kept.append((exchange, at))
        if self.later is None or not success or len(kept) >= MOST_KEPT:
            self.write_out()
        elif not self._due:
            self._due = True
            self.later(WRITE_AFTER, self._write_due)

    def write_out(self) -> None:
        """Write what waits, in the order in which it ended."""
        kept, self._kept = self._kept, []
        if not kept:
            return
        assert self._ready is not None
        handler, lines = self._ready
        ready: list[str] = []
        for exchange, at in kept:
            line = lines.line(exchange, at)
            if line and exchange.outcome == OK:
                ready.append(line)
                continue
            handler.write(ready, spare=True)
            ready = []
            if line:
                handler.write([line], spare=False)
            else:
                self._handle(exchange, at)
        handler.write(ready, spare=True)

    def _left_out(self, exchange: Exchange) -> bool:
        """Whether this success is not among those that get a line."""
        name = exchange.client_id.encode("utf-8", "surrogateescape")
        return xxh3_64_intdigest(name) >= self._below

    def _write_due(self) -> None:
        self._due = False
        self.write_out()

    def _handle(self, exchange: Exchange, at: float) -> None:
        success = exchange.outcome == OK
        log.handle(FactsRecord(log.name, EVENT, facts_of(exchange), at=at, spare=success))

    def _writes_lines(self) -> bool:
        """Whether nobody wants to hear of an exchange but a handler of ours, for which a line will do."""
        if _root.handlers != self._handlers:
            self.write_out()
            self._ready = self._prepare()
        alone = log.parent is _root and not log.handlers and not log.filters and log.propagate
        return alone and self._ready is not None

    def _prepare(self) -> "tuple[LineHandler, AccessLines] | None":
        """The only handler that there is, with lines in its form, if it is one of ours."""
        self._handlers = _root.handlers[:]
        if len(self._handlers) != 1:
            return None
        (handler,) = self._handlers
        if not isinstance(handler, LineHandler) or handler.filters or handler.level > logging.INFO:
            return None
        form = handler.formatter
        return (handler, AccessLines(form)) if isinstance(form, LineFormatter) else None


class AccessLines:
    """Whole lines, just as a formatter writes the facts of a record, of what is common: the first attempt was
    answered, under names that are written the same way in any line. What lines of a kind share is written
    once, and kept."""

    __slots__ = ("_formatter", "_senders", "_templates", "_times")

    def __init__(self, formatter: LineFormatter) -> None:
        self._formatter = formatter
        self._templates: dict[Kind, str] = {}
        self._senders: dict[tuple[str, str], str] = {}
        self._times = Written(lambda parts: repr(parts / PARTS))

    def line(self, exchange: Exchange, at: float) -> str:
        """The line of an exchange that ended `at` this time, with the end of the line; empty when it is not a
        common one."""
        name = exchange.client_id
        received, leased = exchange.received_at, exchange.leased_at
        sent, head = exchange.sent_at, exchange.head_at
        if exchange.past or not (received and leased and sent and head):
            return ""
        if exchange.path != exchange.endpoint or name != exchange.upstream_id or not _plain(name):
            return ""
        first, trace_id = exchange.first_content_at, exchange.trace.trace_id
        prompt, cached = exchange.prompt_tokens, exchange.cached_tokens
        completion = exchange.completion_tokens
        kind = (
            exchange.method,
            exchange.endpoint,
            exchange.model,
            exchange.asked_model,
            exchange.replica,
            exchange.status,
            exchange.outcome,
            exchange.stage,
            exchange.policy,
            exchange.affinity,
            exchange.attempts,
            first == 0.0,
            prompt == 0 == completion,
            cached is None,
            trace_id == "",
        )
        try:
            template = self._templates[kind]
            sender = self._senders[exchange.caller, exchange.peer]
        except KeyError:
            template, sender = self._learn(kind, exchange)
        if not template or not sender:
            return ""
        accepted, ended, times = exchange.accepted_at, exchange.ended_at, self._times
        return template % (
            self._formatter.moment(at),
            name,
            sender,
            times[round((ended - accepted) * PARTS)],
            times[round((received - accepted) * PARTS)],
            times[round((leased - received) * PARTS)],
            times[round((sent - leased) * PARTS)],
            times[round((head - sent) * PARTS)],
            times[round((ended - head) * PARTS)],
            first and times[round((first - sent) * PARTS)],
            prompt,
            cached,
            completion,
            exchange.bytes_in,
            exchange.bytes_out,
            trace_id,
        )

    def _learn(self, kind: Kind, exchange: Exchange) -> tuple[str, str]:
        """The template and the sender of an exchange; empty when one cannot be written apart from a line."""
        facts = facts_of(exchange)
        for kept in (self._templates, self._senders):
            if len(kept) >= MOST_TEMPLATES:
                kept.clear()
        template = self._templates[kind] = self._template(facts)
        form = self._formatter
        parts = [form.fact(name, facts[name]) for name in ("caller", "peer") if name in facts]
        sender = form.joint.join(parts) if all(parts) else ""
        self._senders[exchange.caller, exchange.peer] = sender
        return template, sender

    def _template(self, facts: dict[str, Any]) -> str:
        form = self._formatter
        text, joint = form.opening("info", EVENT, log.name), ""
        variable = list(_VARIABLE)
        for name, value in facts.items():
            if name == "peer":
                continue
            if name in variable:
                while variable.pop(0) != name:
                    text += _LEFT_OUT
                part = "%s" if name == "caller" else form.blank(name, value)
            else:
                part = form.fact(name, value).replace("%", "%%")
                if not part:
                    return ""
            text += f"{joint}{part}"
            joint = form.joint
        return f"{text}{_LEFT_OUT * len(variable)}{form.closing}\n"


def facts_of(exchange: Exchange) -> dict[str, Any]:
    """What a line tells; what does not apply is left out. Times are in seconds.

    `outcome@stage` says how it ended and where. `seconds` is the sum of the times from `receive` to `stream`,
    of which `Exchange.intervals` says what they are; `first_content` counts from when the replica had
    the request, like `head`. `retried`: the attempts before the last one, as `replica:reason`.
    """
    facts: dict[str, Any] = {"request_id": exchange.client_id[:LONGEST]}
    if exchange.upstream_id != exchange.client_id:
        facts["upstream_id"] = exchange.upstream_id
    facts["caller"] = exchange.caller
    if exchange.peer != exchange.caller:
        facts["peer"] = exchange.peer
    facts["method"] = exchange.method
    facts["endpoint"] = exchange.endpoint
    facts["model"] = exchange.model[:LONGEST]
    facts.update(asked_for(exchange))
    facts["replica"] = exchange.replica
    facts["status"] = exchange.status
    facts["outcome"] = f"{exchange.outcome}@{exchange.stage.label}"
    if exchange.leased_at:
        facts["policy"] = exchange.policy
        facts["affinity"] = exchange.affinity
    facts["attempts"] = exchange.attempts
    if exchange.past and exchange.attempts > 1:
        before = exchange.past[: exchange.attempts - 1]
        facts["retried"] = ",".join(f"{attempt.replica}:{attempt.reason}" for attempt in before)
    facts["seconds"] = _rounded(exchange.ended_at - exchange.accepted_at)
    for name, begin, end in exchange.intervals():
        facts[name] = _rounded(end - begin)
    if exchange.first_content_at:
        facts["first_content"] = _rounded(exchange.first_content_at - exchange.sent_at)
    if exchange.prompt_tokens or exchange.completion_tokens:
        facts["prompt_tokens"] = exchange.prompt_tokens
        if exchange.cached_tokens is not None:
            facts["cached_tokens"] = exchange.cached_tokens
        facts["completion_tokens"] = exchange.completion_tokens
    facts["bytes_in"] = exchange.bytes_in
    facts["bytes_out"] = exchange.bytes_out
    if exchange.trace.trace_id:
        facts["trace_id"] = exchange.trace.trace_id
    return facts


def _rounded(seconds: float) -> float:
    # A third of what it takes to round to a number of digits.
    return round(seconds * PARTS) / PARTS


def asked_for(exchange: Exchange) -> dict[str, str]:
    """What the client wrote where `endpoint` and `model` say something else: `path`, without its query, and
    `asked_model`."""
    facts: dict[str, str] = {}
    if exchange.path == exchange.endpoint and exchange.asked_model == exchange.model:
        return facts
    if exchange.path not in (exchange.endpoint, ""):
        facts["path"] = exchange.path[:LONGEST_ASKED]
    if exchange.asked_model not in (exchange.model, ""):
        facts["asked_model"] = exchange.asked_model[:LONGEST_ASKED]
    return facts
