"""What a group of users has seen so far: counts, times to first token, gaps between events."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence

from replicarouter.cells import Histogram

_FINEST_GAP, _LONGEST_GAP, _GAP_STEP = 1e-5, 100.0, 1.05


def _gap_bounds() -> list[float]:
    """Bounds that grow by a twentieth each, so that a quantile of gaps is good to five per cent."""
    steps = math.ceil(math.log(_LONGEST_GAP / _FINEST_GAP, _GAP_STEP))
    return [_FINEST_GAP * _GAP_STEP**step for step in range(steps + 1)]


GAP_BOUNDS = tuple(_gap_bounds())


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of all values do not exceed (nearest rank); None without values."""
    if not values:
        return None
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


class Tally:
    """Every request is started once and ends once: answered, failed (by reason) or cut by its user.

    `ttfts` are seconds from the request's write to its first content, in the order they came about;
    `gaps` are the seconds between reads that ended an event, after the first content.
    """

    __slots__ = ("answered", "cut", "events", "failures", "gaps", "started", "ttfts")

    def __init__(self) -> None:
        self.started = 0
        self.answered = 0
        self.cut = 0
        self.events = 0
        self.failures: Counter[str] = Counter()
        self.ttfts = array("d")
        self.gaps = Histogram(GAP_BOUNDS)

    @property
    def failed(self) -> int:
        """Requests that ended without a whole good answer."""
        return self.failures.total()

    @property
    def in_flight(self) -> int:
        """Requests that have been started and have not ended."""
        return self.started - self.answered - self.failed - self.cut
