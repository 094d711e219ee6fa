"""The latest requests that did not end well, for people who look. No prompt, no key, no address."""

from collections import deque
from dataclasses import dataclass
from heapq import merge
from typing import Any

from replicarouter.exchange import CLIENT_GONE, OK, Exchange

KEPT = 50
"""How many failures are remembered, and as many departures of clients: a wave of the ones must not push
the others out."""

LONGEST = 200
"""Characters that are kept of what clients write."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one request ended. `at` is on the router's clock; `seconds` is how long it took."""

    request_id: str
    at: float
    seconds: float
    endpoint: str
    model: str
    replica: str
    status: int
    outcome: str
    attempts: int


class RecentErrors:
    """Remembers how requests failed. Observes every ended exchange; a success costs one comparison."""

    def __init__(self) -> None:
        self._failed: deque[Ended] = deque(maxlen=KEPT)
        self._departed: deque[Ended] = deque(maxlen=KEPT)

    def observe(self, exchange: Exchange) -> None:
        """Remember an ended exchange unless it went well."""
        if exchange.outcome == OK:
            return
        ring = self._departed if exchange.outcome == CLIENT_GONE else self._failed
        ring.append(
            Ended(
                request_id=_plain(exchange.client_id),
                at=exchange.ended_at,
                seconds=exchange.ended_at - exchange.accepted_at,
                endpoint=exchange.endpoint,
                model=_plain(exchange.model),
                replica=exchange.replica,
                status=exchange.status,
                outcome=f"{exchange.outcome}@{exchange.stage.label}",
                attempts=exchange.attempts,
            )
        )

    def rows(self, now: float, most: int = 2 * KEPT) -> list[dict[str, Any]]:
        """The latest first, as plain documents; `age` is in seconds before `now`."""
        latest = merge(reversed(self._failed), reversed(self._departed), key=_at, reverse=True)
        return [_row(ended, now) for ended, _ in zip(latest, range(most), strict=False)]


def _at(ended: Ended) -> float:
    return ended.at


def _row(ended: Ended, now: float) -> dict[str, Any]:
    return {
        "request_id": ended.request_id,
        "age": now - ended.at,
        "seconds": ended.seconds,
        "endpoint": ended.endpoint,
        "model": ended.model,
        "replica": ended.replica or None,
        "status": ended.status or None,
        "outcome": ended.outcome,
        "attempts": ended.attempts,
    }


def _plain(text: str) -> str:
    """Cut, and free of surrogates, which no JSON holds."""
    return text[:LONGEST].encode("utf-8", "replace").decode()
