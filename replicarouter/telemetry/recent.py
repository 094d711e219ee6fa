"""The latest requests that did not end well, for people who look: failures, and apart from them the
departures of clients, of which the end of a benchmark brings hundreds. No prompt, no key, no address."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from replicarouter.exchange import CLIENT_GONE, OK, Exchange
from replicarouter.telemetry.access_log import asked_for

KEPT = 50
"""How many failures are remembered, and as many departures."""

LONGEST = 200
"""Characters that are kept of what clients write."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one request ended, at which stage. `at` is on the router's clock; `seconds` is how long it took;
    `asked` is what of `path` and `asked_model` the access log tells."""

    request_id: str
    at: float
    seconds: float
    endpoint: str
    model: str
    replica: str
    status: int
    outcome: str
    stage: str
    attempts: int
    asked: dict[str, str]


class RecentErrors:
    """Remembers how requests failed, and who left. Observes every ended exchange; a success costs one
    comparison."""

    def __init__(self) -> None:
        self._failed: deque[Ended] = deque(maxlen=KEPT)
        self._departed: deque[Ended] = deque(maxlen=KEPT)
        self._departures: Counter[str] = Counter()
        self.tell: Callable[[Ended], None] | None = None
        """Is told of each that is remembered."""

    def observe(self, exchange: Exchange) -> None:
        """Remember an ended exchange unless it went well."""
        if exchange.outcome == OK:
            return
        ended = Ended(
            request_id=_plain(exchange.client_id),
            at=exchange.ended_at,
            seconds=exchange.ended_at - exchange.accepted_at,
            endpoint=exchange.endpoint,
            model=_plain(exchange.model),
            replica=exchange.replica,
            status=exchange.status,
            outcome=exchange.outcome,
            stage=exchange.stage.label,
            attempts=exchange.attempts,
            asked={name: _plain(text) for name, text in asked_for(exchange).items()},
        )
        self.remember(ended)
        if self.tell is not None:
            self.tell(ended)

    def remember(self, ended: Ended) -> None:
        """Remember one, be it that another process has seen it."""
        if ended.outcome == CLIENT_GONE:
            self._departures[ended.stage] += 1
            self._departed.append(ended)
        else:
            self._failed.append(ended)

    def failures(self, now: float, most: int = KEPT) -> list[dict[str, Any]]:
        """The latest first, as plain documents; `age` is in seconds before `now`."""
        return _rows(islice(reversed(self._failed), most), now)

    def departures(self, now: float) -> list[dict[str, Any]]:
        """The clients that left before their answer had ended, likewise."""
        return _rows(reversed(self._departed), now)

    def departed(self, now: float) -> dict[str, Any]:
        """How many clients have left since the router started, at which stages, and when the last one did."""
        last = _rows(islice(reversed(self._departed), 1), now)
        return {
            "count": self._departures.total(),
            "stages": dict(self._departures.most_common()),
            "last": last[0] if last else None,
        }


def _rows(latest: Iterable[Ended], now: float) -> list[dict[str, Any]]:
    return [
        {
            "request_id": ended.request_id,
            "age": now - ended.at,
            "seconds": ended.seconds,
            "endpoint": ended.endpoint,
            "model": ended.model,
            "replica": ended.replica or None,
            "status": ended.status or None,
            "outcome": f"{ended.outcome}@{ended.stage}",
            "stage": ended.stage,
            "attempts": ended.attempts,
            **ended.asked,
        }
        for ended in latest
    ]


def _plain(text: str) -> str:
    """Cut, and free of surrogates, which no JSON holds."""
    return text[:LONGEST].encode("utf-8", "replace").decode()
