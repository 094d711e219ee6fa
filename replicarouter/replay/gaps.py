"""Buckets fine enough for percentiles of millions of gaps between tokens."""

from math import ceil

from replicarouter.simulator.measures import Histogram

GROWTH = 1.01
"""Each bucket's upper bound over its lower one: a percentile is off by half a per cent at most."""

SMALLEST = 1e-5
"""Seconds; shorter gaps are in the first bucket."""

GAP_BOUNDS = tuple(SMALLEST * GROWTH**power for power in range(2000))
"""Up to 10 us x 1.01^1999, which is more than an hour."""


def gap_histogram() -> Histogram:
    """An empty histogram with these buckets."""
    return Histogram(GAP_BOUNDS)


def quantile(histogram: Histogram, share: float) -> float | None:
    """The nearest-rank quantile, as the middle of its bucket; None without values."""
    count = histogram.count
    if not count:
        return None
    rank = max(1, ceil(share * count))
    last = len(histogram.bounds) - 1
    for bucket, inside in enumerate(histogram.counts):
        rank -= inside
        if rank <= 0:
            return histogram.bounds[min(bucket, last)] / float(GROWTH**0.5)
    raise AssertionError("the counts do not add up")
