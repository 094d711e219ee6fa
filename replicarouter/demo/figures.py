"""What the users and the ledger showed: over the last seconds for the display, over all for the end."""

from collections import deque
from dataclasses import dataclass

from replicarouter.demo.ledger import LedgerReading
from replicarouter.loadgen.report import Tally, percentile

WINDOW = 5
"""How many looks back the display's figures reach; one look is a second."""

PAGES = 10
"""How many looks back the diagnosis at the end reaches."""


@dataclass(frozen=True, slots=True)
class UserFigures:
    """The users' side over the last looks; times in seconds, None when no request had one."""

    ttft_p50: float | None
    ttft_p90: float | None
    events_per_second: float
    requests_per_second: float
    failed: int


@dataclass(frozen=True, slots=True)
class Look:
    """Everything the display shows: `seconds` since the users began, the ledger, the users."""

    seconds: float
    ledger: LedgerReading
    users: UserFigures


class Window:
    """Takes the users' figures at each look."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._marks: deque[tuple[float, int, int, int]] = deque([(0.0, 0, 0, 0)], maxlen=WINDOW + 1)

    def look(self, seconds: float) -> UserFigures:
        """The figures since the mark of `WINDOW` looks ago; leaves a mark."""
        tally = self._tally
        self._marks.append((seconds, tally.events, tally.answered, len(tally.ttfts)))
        since, events, answered, ttfts = self._marks[0]
        recent = tally.ttfts[ttfts:]
        elapsed = seconds - since
        return UserFigures(
            ttft_p50=percentile(recent, 0.5),
            ttft_p90=percentile(recent, 0.9),
            events_per_second=(tally.events - events) / elapsed,
            requests_per_second=(tally.answered - answered) / elapsed,
            failed=tally.failed,
        )


class Seen:
    """What all looks have in common; `pages` are the times of the last of them and the
    router's metrics then, as text: they are read when the users need no time any more."""

    def __init__(self) -> None:
        self.proxy_limited = False
        self.most_running = 0.0
        self.most_connecting = 0
        self.last: LedgerReading | None = None
        self.pages: deque[tuple[float, str]] = deque(maxlen=PAGES)

    def note(self, reading: LedgerReading) -> None:
        """Take one look at the ledger into account."""
        self.last = reading
        self.proxy_limited |= reading.proxy_limited
        self.most_running = max(self.most_running, reading.running or 0)
        self.most_connecting = max(self.most_connecting, reading.stages["connecting"])
