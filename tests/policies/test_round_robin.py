"""Smooth weighted round-robin."""

from collections.abc import Callable
from random import Random

from replicarouter.fleet.replica import Replica
from replicarouter.policies.round_robin import RoundRobin
from tests.scene import a_replica

Choose = Callable[..., list[str]]


def test_the_turns_are_smooth(choose: Choose) -> None:
    heavy, light = a_replica("a", weight=3), a_replica("b", weight=1)

    assert choose(RoundRobin(), [heavy, light], 8) == ["a", "a", "b", "a"] * 2


def test_three_weights_are_interleaved_as_nginx_documents_it(choose: Choose) -> None:
    replicas = [a_replica("a", weight=5), a_replica("b", weight=1), a_replica("c", weight=1)]

    assert "".join(choose(RoundRobin(), replicas, 7)) == "aabacaa"


def test_a_replica_that_was_away_does_not_catch_up(choose: Choose) -> None:
    one, other = a_replica("a"), a_replica("b")
    policy = RoundRobin()
    choose(policy, [one], 100)

    assert sorted(choose(policy, [one, other], 4)) == ["a", "a", "b", "b"]


def test_a_removed_replica_comes_back_as_new(choose: Choose) -> None:
    one, other = a_replica("a", weight=3), a_replica("b")
    policy = RoundRobin()
    choose(policy, [one, other], 1)
    policy.removed(one)
    policy.removed(other)

    assert choose(policy, [one, other], 4) == ["a", "a", "b", "a"]


def test_everybody_keeps_what_was_earned_while_candidates_come_and_go(choose: Choose) -> None:
    replicas = [a_replica(str(weight), weight=weight) for weight in (1, 2, 3, 5)]
    policy, random = RoundRobin(), Random(3)
    earned: dict[Replica, float] = {}
    for _ in range(200):
        candidates = [one for one in replicas if random.random() < 0.7] or replicas
        for one in candidates:
            earned[one] = earned.get(one, 0.0) + one.weight
        richest = max(candidates, key=earned.__getitem__)
        earned[richest] -= sum(one.weight for one in candidates)

        assert choose(policy, candidates) == [richest.name]
