"""The users' figures over the last looks, and what all looks have in common."""

import pytest

from replicarouter.demo.figures import WINDOW, Seen, Window
from replicarouter.loadgen.report import Tally
from tests.demo.conftest import MakeReading


def test_figures_forget_what_is_older_than_the_window() -> None:
    tally = Tally()
    window = Window(tally)
    tally.ttfts.extend([9.0] * 50)
    tally.events, tally.answered = 1000, 50
    first = window.look(1.0)
    assert (first.ttft_p50, first.events_per_second, first.requests_per_second) == (9.0, 1000.0, 50.0)
    for second in range(2, 2 + WINDOW):
        tally.ttfts.extend([1.0, 3.0])
        tally.events += 100
        tally.answered += 2
        last = window.look(float(second))
    assert (last.ttft_p50, last.ttft_p90) == (1.0, 3.0)
    assert last.events_per_second == pytest.approx(100)
    assert last.requests_per_second == pytest.approx(2)


def test_window_without_requests_has_no_ttft() -> None:
    figures = Window(Tally()).look(1.0)
    assert (figures.ttft_p50, figures.ttft_p90, figures.events_per_second) == (None, None, 0.0)


def test_extremes_of_all_looks_are_kept(reading: MakeReading) -> None:
    seen = Seen()
    looks = [
        reading(connecting=3, limit=5, running=4.0, waiting=9.0),
        reading(connecting=7, limit=5, running=None, waiting=None, proxy_limited=True),
        reading(connecting=1, limit=5, running=5.0, waiting=2.0),
        reading(connecting=0, limit=5, running=2.0, waiting=6.0),
    ]
    for look in looks:
        seen.note(look)
    assert (seen.most_running, seen.most_connecting) == (5.0, 7)
    assert seen.proxy_limited
    assert seen.last is looks[-1]
