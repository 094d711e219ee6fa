"""Requests that queue in the router."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def limited(router: Router, _: float) -> None:
    router.queued, router.held = 128, 4.5
    for one in router.replicas:
        one.limit = one.streaming = 16


@pytest.mark.parametrize("looks", [1, 6])
def test_replicas_at_their_limit_with_idle_engines_are_the_routers_limit(looks: int) -> None:
    verdict = only(window(limited, looks=looks))
    assert (verdict.code, verdict.side) == ("admission_limit", Side.ROUTER)
    assert verdict.setting == "admission.max_outstanding_per_replica"
    assert verdict.evidence[0] == "queued 128 of 256 in flight; running 128"
    assert verdict.cure == (
        "admission.max_outstanding_per_replica: now 16; set it to at least 32 (--max-outstanding), "
        "or 0 for no limit"
    )


def test_half_of_the_replicas_at_their_limit_do_not_explain_a_queue() -> None:
    def half(router: Router, seconds: float) -> None:
        limited(router, seconds)
        for one in router.replicas[:4]:
            one.limit = 64

    assert codes(window(half)) == ["queue_held"]


def test_limits_of_replicas_of_their_own_are_named_as_such() -> None:
    def own(router: Router, seconds: float) -> None:
        limited(router, seconds)
        router[0].limit = router[0].streaming = 8

    verdict = only(window(own))
    assert (verdict.code, verdict.setting) == ("admission_limit", "replicas[].max_outstanding")
    assert "now 8 or 16" in verdict.cure


def test_a_policy_that_waits_for_a_full_replica_is_held_by_its_limit() -> None:
    def waits(router: Router, _: float) -> None:
        router.policy, router.queued, router.held = "prefix-cache", 6, 1.0
        router[0].limit = router[0].streaming = 16
        for one in router.replicas[1:]:
            one.limit, one.streaming = 16, 9

    assert codes(window(waits)) == ["admission_limit"]


def test_a_queue_below_all_limits_is_said_to_be_odd() -> None:
    def trial(router: Router, _: float) -> None:
        router.queued, router.held = 6, 1.0

    assert codes(window(trial)) == ["queue_held"]


def engines_queue_too(router: Router, seconds: float) -> None:
    limited(router, seconds)
    for one in router.replicas:
        one.waiting = 4


def engines_full(router: Router, seconds: float) -> None:
    """The limit is just what the engines can run: their queue stands here."""
    limited(router, seconds)
    for one in router.replicas:
        one.max_num_seqs = 16


def no_queue(router: Router, seconds: float) -> None:
    limited(router, seconds)
    router.queued, router.held = 0, 0


def passing_through(router: Router, seconds: float) -> None:
    limited(router, seconds)
    router.queued, router.held = 1, 0.01


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (engines_queue_too, ["engine_queueing"]),
        (engines_full, ["engine_queueing"]),
        (no_queue, []),
        (passing_through, []),
    ],
)
def test_what_looks_like_it_is_told_from_it(change: Change, found: list[str]) -> None:
    assert codes(window(change)) == found


def test_of_two_pools_the_limited_one_is_judged_by_its_own_queue() -> None:
    def two(router: Router, seconds: float) -> None:
        limited(router, seconds)
        router.more |= {'policy_info{model="n",policy="session"}': 1, 'requests_queued{model="n"}': 0}
        for one in router.replicas[4:]:
            one.model, one.limit = "n", 0

    verdict = only(window(two))
    assert verdict.code == "admission_limit"
    assert "4 replicas with as many" in verdict.evidence[1]


def test_while_requests_are_refused_nobody_knows_how_many_want_in() -> None:
    def shedding(router: Router, seconds: float) -> None:
        limited(router, seconds)
        router.more['shed_total{reason="queue_full"}'] = 3 * seconds

    verdict = judged(window(shedding))[0]
    assert verdict.code == "admission_limit"
    assert "set it to 0 for no limit (--max-outstanding): the queue is full" in verdict.cure
