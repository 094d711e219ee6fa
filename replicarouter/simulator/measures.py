"""What an engine has counted since its start: plain numbers, read by the metrics page."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

# Bucket bounds in seconds or tokens, as vLLM 0.32.0 lists them on its metrics page.
FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_BOUNDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_BOUNDS = (1.0, 8.0, *(float(2**power) for power in range(4, 15)))

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Observations by upper bound; `counts` has one more place for those above the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Note `value`, seen `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)


class Measures:
    """Counters and histograms of one engine. Aborted requests are not counted as finished, as in vLLM."""

    def __init__(self) -> None:
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.rejections = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.spec_drafts = 0
        self.spec_draft_tokens = 0
        self.spec_accepted_at: Counter[int] = Counter()  # by position in the draft, from 0 on
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.step_tokens = Histogram(STEP_BOUNDS)
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.token_gap = Histogram(TOKEN_GAP_BOUNDS)
        self.request = Histogram(REQUEST_BOUNDS)
        self.queue = Histogram(REQUEST_BOUNDS)
