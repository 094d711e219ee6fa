"""Uneven load and its causes."""

import pytest

from replicarouter.diagnosis.verdict import Side, Verdict
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def imbalance(change: Change, looks: int = 6) -> Verdict:
    (verdict,) = [one for one in judged(window(change, looks=looks)) if one.code == "load_imbalance"]
    return verdict


def piled(router: Router, policy: str) -> None:
    """One replica has a queue, the others have room."""
    router.policy = policy
    router[1].streaming, router[1].waiting = 44, 12
    for one in (router[0], *router.replicas[2:]):
        one.streaming = 12


@pytest.mark.parametrize("looks", [1, 6])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_a_policy_that_does_not_look_at_load_is_the_cause(policy: str, looks: int) -> None:
    verdict = imbalance(lambda router, _: piled(router, policy), looks)
    assert (verdict.side, verdict.setting, verdict.replica) == (Side.ROUTER, "policy", "r1")
    assert verdict.evidence[0] == "outstanding, more: r1 44"
    assert "12 wait there while others have nothing waiting" in verdict.evidence
    assert verdict.cure == f"policy: now {policy}; set it to least-outstanding (--policy)"


def test_without_a_queue_a_far_larger_load_is_uneven_too() -> None:
    def crowded(router: Router, _: float) -> None:
        router.policy = "round-robin"
        router[1].streaming = 90

    assert imbalance(crowded).setting == "policy"


def test_weights_are_the_cause_where_the_load_follows_them() -> None:
    def weighted(router: Router, _: float) -> None:
        router[0].weight, router[0].streaming, router[0].waiting = 4, 48, 16
        for one in router.replicas[1:]:
            one.streaming = 12

    verdict = imbalance(weighted)
    assert (verdict.side, verdict.setting, verdict.replica) == (Side.ROUTER, "replicas[].weight", "r0")
    assert verdict.cure.startswith("replicas[].weight of r0: now 4; lower it")


def test_a_replica_that_others_need_and_that_has_little_is_found() -> None:
    """Seven queue, the eighth has next to no weight."""

    def starved(router: Router, _: float) -> None:
        router[7].weight, router[7].streaming = 0.1, 2
        for one in router.replicas[:7]:
            one.waiting = 4

    verdict = imbalance(starved)
    assert verdict.setting == "replicas[].weight"
    assert "engine_queueing" in codes(window(starved))


def test_a_smaller_engine_is_the_cause_where_the_load_is_even() -> None:
    def smaller(router: Router, _: float) -> None:
        router[4].waiting, router[4].max_num_seqs = 8, 8

    verdict = imbalance(smaller)
    assert (verdict.side, verdict.replica, verdict.setting) == (Side.ELSEWHERE, "r4", "replicas[].weight")
    assert "runs 8 at once (max_num_seqs 8)" in verdict.evidence[-1]


def test_a_replica_that_came_back_is_the_cause_while_it_starts_slowly() -> None:
    def back(router: Router, seconds: float) -> None:
        router[7].state = "ejected" if seconds < 2 else "ready"
        router[7].streaming = 0 if seconds < 2 else 3
        for one in router.replicas[:7]:
            one.waiting = 4

    verdict = imbalance(back)
    assert verdict.setting == "health.slow_start"
    assert "r7 came back within the window" in verdict.evidence[-1]


@pytest.mark.parametrize("state", ["ejected", "draining"])
def test_a_replica_that_is_out_is_the_cause_where_another_has_its_sessions(state: str) -> None:
    def out(router: Router, _: float) -> None:
        piled(router, "session")
        router[0].state, router[0].streaming = state, 0

    verdict = imbalance(out)
    assert f"what r0 had goes to others: it is {state}" in verdict.evidence[-1]
    assert "replica_out" in codes(window(out))


@pytest.mark.parametrize("policy", ["session", "prefix-hash", "prefix-cache"])
def test_a_hot_key_is_the_cause_under_a_sticky_policy(policy: str) -> None:
    verdict = imbalance(lambda router, _: piled(router, policy))
    assert verdict.side is Side.ELSEWHERE
    assert verdict.setting == ("policy" if policy == "prefix-cache" else "")
    assert "least-outstanding" in verdict.cure


def hot(router: Router, seconds: float) -> None:
    """One replica at its bound, and most of what belongs there is served by others."""
    router.policy = "session"
    router[1].streaming = 20
    for one in router.replicas[2:]:
        one.streaming = 15.5
    router.more['affinity_total{policy="session",result="hit"}'] = 20 * seconds
    router.more['affinity_total{policy="session",result="spill"}'] = 18 * seconds


def test_a_replica_at_its_bound_from_which_much_is_spilled_has_a_hot_key() -> None:
    verdict = imbalance(hot)
    assert verdict.replica == "r1"
    assert "sent elsewhere (47% of the requests with a known key)" in verdict.evidence[-1]
    assert verdict.cure.startswith("spread that load over more sessions")


@pytest.mark.parametrize("policy", ["session", "prefix-hash"])
def test_a_hot_key_and_its_spills_are_one_fault_with_one_cure(policy: str) -> None:
    def keyed(router: Router, seconds: float) -> None:
        piled(router, policy)
        for result in ("hit", "spill"):
            router.more[f'affinity_total{{policy="{policy}",result="{result}"}}'] = 20 * seconds

    assert codes(window(keyed)) == ["load_imbalance"]
    assert codes(window(hot)) == ["load_imbalance"]


def test_spills_beside_an_imbalance_of_another_cause_are_told_too() -> None:
    def weighted(router: Router, seconds: float) -> None:
        hot(router, seconds)
        router[0].weight, router[0].streaming, router[0].waiting = 4, 60, 16

    assert codes(window(weighted)) == ["load_imbalance", "affinity_lost"]


def test_other_causes_are_left_to_the_decisions() -> None:
    verdict = imbalance(lambda router, _: piled(router, "least-outstanding"))
    assert "decisions" in verdict.cure


# What looks like it


def foreign(router: Router, _: float) -> None:
    """What waits there was sent by somebody else."""
    router[1].running, router[1].waiting = 30, 9


def all_queue(router: Router, _: float) -> None:
    for number, one in enumerate(router.replicas):
        one.waiting = 3 + number % 3


def a_queue_at_times(router: Router, seconds: float) -> None:
    router.policy = "round-robin"
    router[1].streaming, router[1].waiting = (30, 9) if seconds in {1, 3} else (16, 0)


def one_that_waits_for_a_step(router: Router, _: float) -> None:
    router[1].waiting = 1


def one_of_few_waits_for_a_step(router: Router, _: float) -> None:
    for one in router.replicas:
        one.streaming = 4
    router[1].waiting = 1


def a_few_of_many_wait(router: Router, _: float) -> None:
    for one in router.replicas:
        one.streaming = 200
    router[1].waiting = 12


def a_third_more_of_many(router: Router, _: float) -> None:
    for one in router.replicas:
        one.streaming = 200
    router[1].streaming = 300


def twice_of_few(router: Router, _: float) -> None:
    router.policy = "round-robin"
    for one in router.replicas:
        one.streaming = 0.5
    router[1].streaming = 7


def one_has_a_little_less(router: Router, _: float) -> None:
    for one in router.replicas:
        one.waiting = 4
    router[7].waiting, router[7].streaming = 0, 11


def weighted_as_meant(router: Router, _: float) -> None:
    router[0].weight, router[0].streaming = 4, 64


def few_sessions(router: Router, _: float) -> None:
    router.policy = "session"
    for one in router.replicas[1:]:
        one.streaming = 0
    router[0].streaming = 4


def spills_without_a_bound(router: Router, seconds: float) -> None:
    hot(router, seconds)
    router[1].streaming = 16


def few_keys(router: Router, seconds: float) -> None:
    hot(router, seconds)
    for result in ("hit", "spill"):
        router.more[f'affinity_total{{policy="session",result="{result}"}}'] = 1.4 * seconds


def bound_without_spills(router: Router, seconds: float) -> None:
    hot(router, seconds)
    router.more['affinity_total{policy="session",result="spill"}'] = 2 * seconds


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (foreign, ["foreign_traffic"]),
        (all_queue, ["engine_queueing"]),
        (a_queue_at_times, []),
        (one_that_waits_for_a_step, []),
        (one_of_few_waits_for_a_step, []),
        (a_few_of_many_wait, []),
        (a_third_more_of_many, []),
        (twice_of_few, []),
        (one_has_a_little_less, ["engine_queueing"]),
        (weighted_as_meant, []),
        (few_sessions, []),
        (spills_without_a_bound, ["affinity_lost"]),
        (bound_without_spills, []),
        (few_keys, []),
    ],
)
def test_what_looks_like_it_is_told_from_it(change: Change, found: list[str]) -> None:
    assert codes(window(change)) == found


def test_of_two_replicas_the_one_with_a_queue_and_more_load_has_too_much() -> None:
    def two(router: Router, _: float) -> None:
        router.policy = "random"
        router[0].streaming, router[0].waiting = 22, 6
        router[1].streaming = 10

    assert only(window(two, replicas=2)).code == "load_imbalance"
