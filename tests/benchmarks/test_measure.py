"""A measurement, with real replicas, clients and a real router."""

import os
import sys

import pytest

from benchmarks.cores import Cores
from benchmarks.entrants import DIRECT, OURS, Entrant
from benchmarks.measure import Bench, measure
from benchmarks.proxies import Tools
from benchmarks.scenarios import Scenario


@pytest.fixture
def bench() -> Bench:
    cores = sorted(os.sched_getaffinity(0))
    return Bench(Tools(sys.executable), Cores(cores[:1], cores[-1:]), engines=2, clients=2)


def test_users_are_added_step_by_step_and_shared_among_the_clients(bench: Bench) -> None:
    steps = Scenario(users=(1, 5), events=4, interval=0.02, spread=0.1, warm=0.2, seconds=1.0)
    alone, crowd = measure(Entrant(DIRECT), "steps", steps, bench)
    assert (alone.failure, crowd.failure, alone.errors, crowd.errors) == ("", "", {}, {})
    assert (alone.users, crowd.users) == (1, 5)
    assert 0 < alone.units < crowd.units
    assert alone.ttft is not None
    assert crowd.itl is not None


def test_the_router_is_measured_and_its_start_is_kept(bench: Bench) -> None:
    short = Scenario(users=(4,), warm=0.2, seconds=0.5)
    (found,) = measure(Entrant(OURS), "short", short, bench)
    assert (found.failure, found.errors, found.cut_bodies) == ("", {}, 0)
    assert found.units > 0
    assert found.rss > 0
    assert "replicarouter" in bench.launches[OURS].command


def test_streams_are_held_open_by_users_who_read_no_more(bench: Bench) -> None:
    stalled = Scenario(users=(3,), events=400_000, warm=20.0, seconds=1.5, hold=True, stalled=True)
    (found,) = measure(Entrant(OURS), "stalled", stalled, bench)
    assert (found.failure, found.errors, found.held) == ("", {}, 3)
    assert found.events_under_way > 3


def test_a_program_that_ends_is_a_failure_with_its_last_words(bench: Bench) -> None:
    flags = (("no-such-flag", "1"),)
    (found,) = measure(Entrant(OURS, flags=flags), "short", Scenario(users=(1,)), bench)
    assert "no-such-flag" in found.failure
