"""KV caches: full, or not as cold as meant."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def one_full(router: Router, _: float) -> None:
    router[6].kv = 0.94


def pushed_out(router: Router, seconds: float) -> None:
    router[6].preemptions = 40 + 2 * seconds


@pytest.mark.parametrize("change", [one_full, pushed_out])
def test_a_kv_cache_without_room_is_named(change: Change) -> None:
    verdict = only(window(change))
    assert (verdict.code, verdict.side, verdict.replica, verdict.setting) == (
        "kv_pressure",
        Side.ELSEWHERE,
        "r6",
        "gpu_memory_utilization",
    )
    assert verdict.cure.startswith("gpu_memory_utilization of the engines: raise it first (--gpu-memory-util")
    assert ("94%" in verdict.evidence[0]) is (change is one_full)
    assert ("10 preemptions: r6" in verdict.evidence[0]) is (change is pushed_out)


def test_usage_is_told_by_one_page_and_preemptions_are_not() -> None:
    assert codes(window(one_full, looks=1)) == ["kv_pressure"]
    assert codes(window(pushed_out, looks=1)) == []


def nearly_full(router: Router, _: float) -> None:
    for one in router.replicas:
        one.kv = 0.85


def full_at_times(router: Router, seconds: float) -> None:
    router[6].kv = 0.99 if seconds in {1, 3} else 0.7


def pushed_out_long_ago(router: Router, _: float) -> None:
    router[6].preemptions = 4000


@pytest.mark.parametrize("change", [nearly_full, full_at_times, pushed_out_long_ago])
def test_a_well_used_cache_is_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


def warm(router: Router, seconds: float) -> None:
    router[1].hits = 9000 + 20 * seconds
    router[2].hits = 9000 + 44 * seconds


def test_hits_in_a_run_that_is_meant_to_be_cold_are_told_with_their_rate() -> None:
    verdict = only(window(warm), cold=True)
    assert (verdict.code, verdict.side) == ("not_cold", Side.ELSEWHERE)
    assert verdict.evidence == (
        "20% of the prompt tokens that the engines looked up were cached (320 of 1,600)",
        "at r1, r2",
    )


def test_without_the_engines_counters_the_answers_tell() -> None:
    def usage(router: Router, seconds: float) -> None:
        for one in router.replicas:
            one.queries = 5000
        router.more['tokens_total{model="m",kind="prompt"}'] = 1000 * seconds
        router.more['tokens_total{model="m",kind="cached"}'] = 100 * seconds

    verdict = only(window(usage), cold=True)
    assert verdict.evidence == ("10% of the prompt tokens of finished requests were cached (500 of 5,000)",)


def the_template(router: Router, seconds: float) -> None:
    for one in router.replicas:
        one.queries, one.hits = 5000 + 4000 * seconds, 16 * seconds


def cached_before(router: Router, _: float) -> None:
    for one in router.replicas:
        one.hits = 3000


@pytest.mark.parametrize("change", [the_template, cached_before])
def test_a_cold_run_is_no_finding(change: Change) -> None:
    assert codes(window(change), cold=True) == []


def test_hits_are_welcome_otherwise() -> None:
    assert codes(window(warm)) == []
