"""One slow replica."""

import re

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import GAP, Change, Router, codes, only, window


def slow(router: Router, _: float) -> None:
    router[5].gap, router[5].gaps = 3 * GAP, router[5].gaps / 3


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_a_replica_with_longer_gaps_than_its_peers_is_named(replicas: int) -> None:
    def last_is_slow(router: Router, _: float) -> None:
        one = router.replicas[-1]
        one.gap, one.gaps = 3 * GAP, one.gaps / 3

    verdict = only(window(last_is_slow, replicas=replicas))
    assert (verdict.code, verdict.side, verdict.replica) == (
        "slow_replica",
        Side.ELSEWHERE,
        f"r{replicas - 1}",
    )
    assert re.fullmatch(
        r"39\.3 ms between tokens \(mean of [\d,]+\); its peers 13\.1 ms", verdict.evidence[0]
    )
    assert (verdict.cure.startswith("look at its GPU"), verdict.setting) == (True, "")


def test_a_blind_policy_fills_the_slow_replica_which_is_slow_all_the_same() -> None:
    def piled(router: Router, _: float) -> None:
        router.policy = "round-robin"
        router[5].streaming, router[5].gap, router[5].gaps = 30, 2.5 * GAP, router[5].gaps / 3

    assert codes(window(piled))[0] == "slow_replica"


def larger_batch(router: Router, _: float) -> None:
    """Three times the requests, twice the gap: it has too much to do, it is not slow."""
    router[5].streaming, router[5].gap = 27, 1.65 * GAP


def a_few_gaps(router: Router, seconds: float) -> None:
    router[5].gap, router[5].gaps = 9 * GAP, 4 * seconds


def all_slow(router: Router, _: float) -> None:
    for one in router.replicas:
        one.gap *= 6


def unnoticeable(router: Router, _: float) -> None:
    for one in router.replicas:
        one.gap = 0.001
    router[5].gap = 0.0025


def slow_in_another_pool(router: Router, seconds: float) -> None:
    """A larger model takes longer."""
    router.more['policy_info{model="n",policy="session"}'] = 1
    for one in router.replicas[4:]:
        one.model, one.gap = "n", 4 * GAP


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (larger_batch, []),
        (a_few_gaps, []),
        (all_slow, []),
        (unnoticeable, []),
        (slow_in_another_pool, []),
    ],
)
def test_what_looks_like_it_is_told_from_it(change: Change, found: list[str]) -> None:
    assert codes(window(change)) == found


def test_one_page_tells_no_speed() -> None:
    assert codes(window(slow, looks=1)) == []
