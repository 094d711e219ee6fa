"""What one replay has counted."""

from array import array
from dataclasses import dataclass, field

from replicarouter.policies.base import Policy
from replicarouter.replay.gaps import gap_histogram
from replicarouter.simulator.measures import Histogram

NO_ITL = -1.0
"""In place of the mean gap between tokens where an answer has one token."""


@dataclass(slots=True, eq=False)
class Tally:
    """Sums over all requests, and for each answered one its TTFT and mean ITL in seconds (`NO_ITL` for an
    answer of one token), in the same order. Times are on the clock of the replay.

    Counted are the requests that came between `began` and `closed`; all others were replayed, too
    (`replayed`). `ended` is when the last counted one had its answer.

    `expected_tokens` are those of the cached ones that the policy knew of, `remembered` the most bytes that
    it was seen to take for what it remembers, `cut` what it dropped to stay within its own bound.

    `uncached` (tokens in the timed replay, blocks in the untimed one) and `given` are by replica.
    """

    replicas: int
    replayed: int = 0
    requests: int = 0
    answered: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    expected_tokens: int = 0
    output_tokens: int = 0
    remembered: int = 0
    cut: int = 0
    preemptions: int = 0
    began: float = 0.0
    closed: float = 0.0
    ended: float = 0.0
    wall: float = 0.0
    affinity: dict[str, int] = field(default_factory=dict)
    ttft: "array[float]" = field(default_factory=lambda: array("d"))
    itl: "array[float]" = field(default_factory=lambda: array("d"))
    gaps: Histogram = field(default_factory=gap_histogram)
    uncached: "array[int]" = field(init=False)
    given: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.uncached = array("q", [0] * self.replicas)
        self.given = array("q", [0] * self.replicas)

    @property
    def hit_ratio(self) -> float:
        """Cached over all prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def recall(self) -> float | None:
        """What the policy knew of the cached tokens; None where it knows of none."""
        return self.expected_tokens / self.cached_tokens if self.expected_tokens else None

    def look_at(self, policy: Policy) -> None:
        """See how much the policy remembers."""
        memory = policy.remembered()
        self.remembered = max(self.remembered, memory.bytes)
        self.cut = memory.cut

    @property
    def seconds(self) -> float:
        """In which the counted requests came."""
        return self.closed - self.began


def imbalance(amounts: "array[int]") -> float:
    """The largest over the mean; 1 when there is nothing."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0
