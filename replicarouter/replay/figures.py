"""What a replay's counts say: ratios, percentiles and rates."""

from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from replicarouter.replay.gaps import quantile
from replicarouter.replay.tally import Tally, imbalance

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Slo:
    """A good answer has its first token within `ttft` seconds, and its tokens `itl` seconds apart on the
    average (an answer of one token meets that)."""

    ttft: float = 2.0
    itl: float = 0.025


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds; None without values."""

    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        """Exact ones, by nearest rank."""
        ordered = sorted(values)
        return cls(*(_rank(ordered, percent) for percent in PERCENTILES))


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one replay, over the `requests` that are counted of all that were `replayed`. They came within
    `seconds`, and the last of them was answered `drained` seconds after the first could come.

    `hit_ratio` is cached over all prompt tokens. `recall` is the share of the cached tokens that the policy
    knew of, None where it knows of none; `remembered` the most bytes it took to know, `cut` how much it
    forgot for its own bound. `itl` has the mean gap of each answer, `gap` all gaps pooled (to half a per
    cent). `goodput` is how many came in a second that got a good answer, `good_share` their share of all;
    `output_tokens_per_second` is over `drained`. `uncached_imbalance` and `request_imbalance` are the
    busiest replica over the mean. `wall` is how long the computing took.
    """

    replayed: int
    requests: int
    answered: int
    refused_share: float
    hit_ratio: float
    recall: float | None
    remembered: int
    cut: int
    uncached_imbalance: float
    request_imbalance: float
    ttft: Percentiles
    itl: Percentiles
    gap: Percentiles
    output_tokens_per_second: float
    goodput: float
    good_share: float
    preemptions: int
    seconds: float
    drained: float
    wall: float
    affinity: dict[str, int]

    @classmethod
    def of(cls, tally: Tally, slo: Slo) -> "Figures":
        """Take the figures of a replay that has ended."""
        drained = tally.ended - tally.began
        good = sum(
            ttft <= slo.ttft and itl <= slo.itl for ttft, itl in zip(tally.ttft, tally.itl, strict=True)
        )
        return cls(
            replayed=tally.replayed,
            requests=tally.requests,
            answered=tally.answered,
            refused_share=tally.refused / tally.requests if tally.requests else 0.0,
            hit_ratio=tally.hit_ratio,
            recall=tally.recall,
            remembered=tally.remembered,
            cut=tally.cut,
            uncached_imbalance=imbalance(tally.uncached),
            request_imbalance=imbalance(tally.given),
            ttft=Percentiles.of(tally.ttft),
            itl=Percentiles.of(array("d", (itl for itl in tally.itl if itl >= 0))),
            gap=Percentiles(*(quantile(tally.gaps, percent / 100) for percent in PERCENTILES)),
            output_tokens_per_second=tally.output_tokens / drained if drained > 0 else 0.0,
            goodput=good / tally.seconds if tally.seconds > 0 else 0.0,
            good_share=good / tally.requests if tally.requests else 0.0,
            preemptions=tally.preemptions,
            seconds=tally.seconds,
            drained=drained,
            wall=tally.wall,
            affinity=dict(tally.affinity),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _rank(ordered: Sequence[float], percent: int) -> float | None:
    if not ordered:
        return None
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]
