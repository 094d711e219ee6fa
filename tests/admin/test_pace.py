"""Rates and means of what came between two looks."""

import pytest

from replicarouter.admin.pace import WHOLE, Pace
from tests.scene import an_exchange
from tests.telemetry.conftest import Watched


class Cpu:
    """CPU seconds used, by hand."""

    def __init__(self) -> None:
        self.used = 3.0

    def __call__(self) -> float:
        return self.used


def finish(watched: Watched, outcome: str, count: int) -> None:
    watched.fleet.ledger.arrived.add(("/v1/chat/completions",), count)
    watched.fleet.ledger.finished.add(("/v1/chat/completions", "m1", "a", outcome), count)


def test_rates_are_of_the_time_between_two_looks(watched: Watched) -> None:
    cpu = Cpu()
    finish(watched, "ok", 100)
    pace = Pace(watched.sources, cpu)
    finish(watched, "ok", 8)
    finish(watched, "client_gone", 2)
    finish(watched, "connect_failed", 3)
    finish(watched, "queue_full", 1)
    watched.fleet.ledger.in_flight["u"] = an_exchange()
    watched.fleet.ledger.arrived.add(("/v1/chat/completions",))
    watched.clock.move(2.0)
    cpu.used += 0.5
    look = pace.look()
    assert look["ended"] == {"ok": 4.0, "client_gone": 1.0, "failed": 2.0}
    assert look["received"] == (8 + 2 + 3 + 1 + 1) / 2.0
    assert look["cpu"] == 0.25


def test_a_look_begins_the_next(watched: Watched) -> None:
    pace = Pace(watched.sources, Cpu())
    finish(watched, "ok", 8)
    watched.clock.move(2.0)
    pace.look()
    watched.clock.move(1.0)
    assert pace.look()["ended"]["ok"] == 0.0


def test_means_are_of_what_came_between(watched: Watched) -> None:
    metrics = watched.metrics
    metrics.gaps.of(("a",)).observe(5.0)
    pace = Pace(watched.sources, Cpu())
    for replica, gap in (("a", 0.1), ("a", 0.3), ("b", 0.5)):
        metrics.gaps.of((replica,)).observe(gap)
    metrics.upstream_ttft.of(("b",)).observe(2.0)
    watched.clock.move(1.0)
    look = pace.look()
    assert look["itl"] == {"a": pytest.approx(0.2), "b": pytest.approx(0.5), WHOLE: pytest.approx(0.3)}
    assert look["ttft"] == {"b": pytest.approx(2.0), WHOLE: pytest.approx(2.0)}
    watched.clock.move(1.0)
    assert set(pace.look()["itl"].values()) == {None}


def test_a_replica_that_came_back_begins_anew(watched: Watched) -> None:
    watched.metrics.gaps.of(("a",)).observe(5.0)
    pace = Pace(watched.sources, Cpu())
    watched.metrics.gaps.fold(0, "a", "gone")
    watched.metrics.gaps.of(("a",)).observe(0.1)
    watched.clock.move(1.0)
    assert pace.look()["itl"]["a"] is None


def test_looking_makes_no_series(watched: Watched) -> None:
    pace = Pace(watched.sources, Cpu())
    watched.clock.move(1.0)
    pace.look()
    assert list(watched.metrics.gaps) == []


def test_two_looks_at_one_moment_do_not_divide_by_nothing(watched: Watched) -> None:
    pace = Pace(watched.sources, Cpu())
    assert pace.look()["received"] == 0.0
