"""Percentiles and the tally."""

import pytest

from replicarouter.loadgen.report import GAP_BOUNDS, Tally, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.1, 1.0), (0.11, 2.0), (0.5, 5.0), (0.9, 9.0), (1.0, 10.0)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], share) == expected


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None


@pytest.mark.parametrize("gap", [0.0002, 0.0115, 0.022, 0.5, 30.0])
def test_quantile_of_gaps_is_good_to_five_per_cent(gap: float) -> None:
    tally = Tally()
    for _ in range(100):
        tally.gaps.observe(gap)
    assert tally.gaps.quantile(0.5) == pytest.approx(gap, rel=0.05)


def test_gaps_from_microseconds_to_minutes_have_a_bucket() -> None:
    assert GAP_BOUNDS[0] <= 1e-5
    assert GAP_BOUNDS[-1] >= 100
    assert list(GAP_BOUNDS) == sorted(GAP_BOUNDS)


def test_every_request_is_in_flight_until_it_ends() -> None:
    tally = Tally()
    tally.started = 10
    tally.answered = 4
    tally.cut = 1
    tally.failures.update({"status 503": 2, "connection lost": 1})
    assert tally.failed == 3
    assert tally.in_flight == 2
