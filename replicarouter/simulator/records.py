"""What became of each request that an engine received, by a name its client chose. No sockets."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

NONCE_HEADER = "x-soak-nonce"
"""Names a request across attempts; without it, `X-Request-Id` does."""

MOST = 20_000
"""Names kept; the oldest is forgotten first. The totals go on."""

EVENTS = ("received", "refused", "started", "dropped", "finished", "aborted")


class Records:
    """Counts of six events by name. A generation is `received` when its body is complete. Then it is
    `refused` with an error, `dropped` with its connection before a byte of an answer, or `started`, as
    is one that is swallowed; and one that has been started is `finished` when its last byte is
    written, or `aborted`: by its client, a fault or the engine's end. `tell` hears of each event with
    the name, for a journal.
    """

    def __init__(self, tell: Callable[[str, str], None] | None = None) -> None:
        self.totals: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        self._named: OrderedDict[str, Counter[str]] = OrderedDict()
        self._tell = tell

    def note(self, name: str, event: str) -> None:
        """Count an event."""
        self.totals[event] += 1
        if self._tell:
            self._tell(name, event)
        if not name:
            return
        record = self._named.get(name)
        if record is None:
            record = self._named[name] = Counter()
            if len(self._named) > MOST:
                self._named.popitem(last=False)
        record[event] += 1

    def as_json(self) -> dict[str, Any]:
        """What `GET /sim/requests` shows."""
        return {**self.totals, "requests": {name: dict(counts) for name, counts in self._named.items()}}


def name_of(headers: Mapping[str, str]) -> str:
    """The name of a request; empty when it has none."""
    return headers.get(NONCE_HEADER) or headers.get("x-request-id", "")
