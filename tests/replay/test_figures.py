"""What counts say."""

from array import array

import pytest

from replicarouter.replay.figures import Figures, Percentiles, Slo
from replicarouter.replay.tally import NO_ITL, Tally


def tally() -> Tally:
    found = Tally(2, replayed=12, requests=10, answered=4, refused=1, prompt_tokens=100, cached_tokens=25)
    found.began, found.closed, found.ended, found.output_tokens = 10.0, 20.0, 30.0, 400
    found.ttft = array("d", [0.5, 2.0, 2.1, 0.1])
    found.itl = array("d", [0.020, 0.025, 0.010, NO_ITL])
    found.uncached = array("q", [30, 10])
    return found


def test_an_answer_is_good_when_it_meets_both_slos() -> None:
    figures = Figures.of(tally(), Slo())
    assert figures.good_share == pytest.approx(3 / 10)
    assert figures.goodput == pytest.approx(3 / 10.0)
    assert Figures.of(tally(), Slo(ttft=3.0, itl=0.015)).good_share == pytest.approx(2 / 10)


def test_rates_and_shares_are_of_counted_requests() -> None:
    figures = Figures.of(tally(), Slo())
    assert figures.refused_share == pytest.approx(0.1)
    assert figures.hit_ratio == 0.25
    assert figures.output_tokens_per_second == pytest.approx(20.0)
    assert (figures.seconds, figures.drained) == (10.0, 20.0)
    assert figures.uncached_imbalance == pytest.approx(1.5)


def test_answers_of_one_token_have_no_part_in_the_gaps() -> None:
    assert Figures.of(tally(), Slo()).itl == Percentiles(0.020, 0.025, 0.025)


def test_percentiles_are_by_nearest_rank() -> None:
    assert Percentiles.of([float(value) for value in range(100, 0, -1)]) == Percentiles(50.0, 90.0, 99.0)
    assert Percentiles.of([7.0]) == Percentiles(7.0, 7.0, 7.0)
    assert Percentiles.of([]) == Percentiles(None, None, None)


def test_a_replay_of_nothing_has_figures_too() -> None:
    assert Figures.of(Tally(2), Slo()).goodput == 0.0
