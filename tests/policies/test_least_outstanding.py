"""Fewest outstanding per weight, with the load of others and recent failures."""

from collections.abc import Callable

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.replica import PENALTY, Replica
from replicarouter.policies.least_outstanding import LeastOutstanding
from tests.scene import a_replica

Choose = Callable[..., list[str]]


def busy(replica: Replica, outstanding: int) -> Replica:
    replica.cells[replica.row + OUTSTANDING] = outstanding
    return replica


def test_the_least_busy_is_chosen_every_time(choose: Choose) -> None:
    replicas = [busy(a_replica("a"), 3), busy(a_replica("b"), 1), busy(a_replica("c"), 2)]

    assert choose(LeastOutstanding(), replicas, 3) == ["b", "b", "b"]


@pytest.mark.parametrize(("heavy", "light", "expected"), [(3, 1, "a"), (5, 1, "a"), (8, 1, "b")])
def test_outstanding_counts_by_weight(choose: Choose, heavy: int, light: int, expected: str) -> None:
    replicas = [busy(a_replica("a", weight=4), heavy), busy(a_replica("b"), light)]

    assert choose(LeastOutstanding(), replicas) == [expected]


def test_an_idle_fleet_fills_the_heavier_replica_first(choose: Choose) -> None:
    replicas = [a_replica("a"), a_replica("b", weight=2)]

    assert choose(LeastOutstanding(), replicas) == ["b"]


def test_the_load_that_others_put_on_an_engine_counts(choose: Choose) -> None:
    shared, ours = a_replica("a"), busy(a_replica("b"), 4)
    shared.take(EngineReading(running=8, waiting=2), 1000.0)

    assert choose(LeastOutstanding(), [shared, ours], 2) == ["b", "b"]


def test_our_own_requests_in_the_engine_do_not_count_twice(choose: Choose) -> None:
    busier, other = busy(a_replica("a"), 4), busy(a_replica("b"), 5)
    busier.take(EngineReading(running=4, waiting=0), 1000.0)

    assert choose(LeastOutstanding(), [busier, other]) == ["a"]


def test_a_failing_replica_is_avoided_for_the_penalty_time(choose: Choose) -> None:
    failing, other = a_replica("a"), busy(a_replica("b"), 2)
    for _ in range(3):
        failing.failed(1000.0)
    policy = LeastOutstanding()

    assert choose(policy, [failing, other], now=1000.0) == ["b"]
    assert choose(policy, [failing, other], now=1000.0 + PENALTY - 0.1) == ["b"]
    assert choose(policy, [failing, other], now=1000.0 + PENALTY) == ["a"]


def test_equal_replicas_take_turns_whoever_joins_or_leaves(choose: Choose) -> None:
    replicas = [a_replica(name) for name in "abc"]
    policy = LeastOutstanding()

    assert choose(policy, replicas, 4) == ["a", "b", "c", "a"]
    assert sorted(choose(policy, replicas[:2], 4)) == ["a", "a", "b", "b"]
