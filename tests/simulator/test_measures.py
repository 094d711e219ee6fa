import pytest

from replicarouter.simulator.measures import Histogram


def test_observations_are_counted_under_the_first_bound_that_holds_them() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1]
    assert histogram.count == 4
    assert histogram.total == pytest.approx(12.0)


def test_equal_observations_are_noted_at_once() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.25, 8)
    assert histogram.counts == [8, 0]
    assert histogram.total == pytest.approx(2.0)
