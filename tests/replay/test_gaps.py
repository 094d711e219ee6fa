"""Percentiles of gaps between tokens."""

from random import Random

import pytest

from replicarouter.replay.gaps import gap_histogram, quantile


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_a_percentile_is_within_half_a_per_cent(share: float) -> None:
    random = Random(5)
    values = sorted(random.lognormvariate(-4, 1) for _ in range(20_000))
    gaps = gap_histogram()
    for value in values:
        gaps.observe(value)
    exact = values[int(share * len(values)) - 1]
    assert quantile(gaps, share) == pytest.approx(exact, rel=0.006)


def test_many_equal_gaps_are_noted_at_once() -> None:
    gaps = gap_histogram()
    gaps.observe(0.02, 99)
    gaps.observe(5.0)
    assert quantile(gaps, 0.99) == pytest.approx(0.02, rel=0.006)
    assert quantile(gaps, 1.0) == pytest.approx(5.0, rel=0.006)


def test_without_gaps_there_is_no_percentile() -> None:
    assert quantile(gap_histogram(), 0.5) is None
