"""One log line for each exchange: who asked for what, who answered, how long what took, how it ended. No
prompt, no key."""

import logging
from typing import Any

from xxhash import xxh3_64_intdigest

from replicarouter.exchange import OK, Exchange
from replicarouter.telemetry.logs import FactsRecord

log = logging.getLogger("replicarouter.access")

EVENT = "request"

LONGEST = 200
"""Characters of a name that a line takes at most; clients write some of them, and engines others."""

LONGEST_ASKED = 100
"""The same of what was asked for under a name that the router does not know."""

_ALL = 2**64


class AccessLog:
    """Writes the lines. Of those about successes it writes the share `sample`, which may be set at any time;
    by which id a request goes decides whether it is among them, wherever it is logged."""

    def __init__(self, sample: float = 1.0) -> None:
        self.sample = sample

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
        if success and self._below < _ALL:
            name = exchange.client_id.encode("utf-8", "surrogateescape")
            if xxh3_64_intdigest(name) >= self._below:
                return
        log.handle(FactsRecord(log.name, EVENT, facts_of(exchange), spare=success))


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
    facts["seconds"] = round(exchange.ended_at - exchange.accepted_at, 4)
    for name, begin, end in exchange.intervals():
        facts[name] = round(end - begin, 4)
    if exchange.first_content_at:
        facts["first_content"] = round(exchange.first_content_at - exchange.sent_at, 4)
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
