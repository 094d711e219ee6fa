"""Many times as a few numbers that can be added: what several clients measured, as one distribution."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import exp, log

RESOLUTION = 1000
"""Buckets for each factor of e: a percentile is right to a twentieth of a per cent."""

SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))

Buckets = Mapping[int, int]


def buckets(nanoseconds: Iterable[int]) -> Buckets:
    """Return how many of the times fall into each bucket."""
    return Counter(int(RESOLUTION * log(max(1, each))) for each in nanoseconds)


def merged(parts: Iterable[Mapping[str, int]]) -> Buckets:
    """Return the sum of distributions that came as JSON, whose keys are text."""
    total: Counter[int] = Counter()
    for part in parts:
        for bucket, count in part.items():
            total[int(bucket)] += count
    return total


def percentiles(found: Buckets) -> dict[str, float] | None:
    """Return the median, p90, p99 and maximum in milliseconds."""
    if not found:
        return None
    total = sum(found.values())
    ranks = {name: min(total - 1, int(total * share)) for name, share in SHARES}
    answer: dict[str, float] = {}
    seen = 0
    for bucket in sorted(found):
        seen += found[bucket]
        for name, rank in ranks.items():
            if name not in answer and rank < seen:
                answer[name] = round(exp((bucket + 0.5) / RESOLUTION) / 1e6, 4)
    return answer
