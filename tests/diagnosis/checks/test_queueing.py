"""Requests that wait in the engines."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def full(router: Router, _: float) -> None:
    """256 users, eight engines that run 16 each."""
    for one in router.replicas:
        one.streaming, one.waiting = 32, 16


@pytest.mark.parametrize("looks", [1, 2, 11])
def test_engines_with_queues_are_named_with_the_setting(looks: int) -> None:
    verdict = only(window(full, looks=looks))
    assert (verdict.code, verdict.side, verdict.setting) == (
        "engine_queueing",
        Side.ELSEWHERE,
        "max_num_seqs",
    )
    assert verdict.evidence[0] == "waiting in the engines: 128, running: 128 on 8 ready replicas"
    assert verdict.evidence[1] == "waiting in the router: 0"
    assert "now 16, as it seems; raise it to at least 32 (--max-num-seqs)" in verdict.cure


def test_a_known_limit_is_told() -> None:
    def known(router: Router, seconds: float) -> None:
        full(router, seconds)
        for one in router.replicas:
            one.max_num_seqs = 16

    assert "now 16; raise it" in only(window(known)).cure


def test_engines_that_wait_for_prompts_need_no_larger_batch() -> None:
    def prompts(router: Router, seconds: float) -> None:
        full(router, seconds)
        for one in router.replicas:
            one.max_num_seqs = 256

    verdict = only(window(prompts))
    assert verdict.setting == ""
    assert verdict.cure.startswith("add replicas: engines run 16 of the 256 they may")


def test_with_a_full_kv_cache_a_larger_batch_does_not_help() -> None:
    def no_room(router: Router, seconds: float) -> None:
        full(router, seconds)
        for one in router.replicas:
            one.kv = 0.97

    assert codes(window(no_room)) == ["kv_pressure", "engine_queueing"]
    assert judged(window(no_room))[1].cure.startswith("add replicas: their KV caches are full")


def arrivals_wait_for_a_step(router: Router, seconds: float) -> None:
    for number, one in enumerate(router.replicas):
        one.waiting = float((number + int(seconds)) % 4 == 0)


def a_wave(router: Router, seconds: float) -> None:
    if seconds in {1, 2}:
        full(router, seconds)


def hardly_any(router: Router, _: float) -> None:
    """One request waits among a hundred that run."""
    for one in router.replicas:
        one.streaming, one.waiting = 100, 1


@pytest.mark.parametrize("change", [arrivals_wait_for_a_step, a_wave, hardly_any])
def test_moments_are_no_queue(change: Change) -> None:
    assert codes(window(change)) == []


def short_answers(router: Router, seconds: float) -> None:
    """Each engine answers 300 requests a second: at any time some wait for its next step."""
    for one in router.replicas:
        one.waiting = 4
        router.more[f'requests_total{{endpoint="e",model="m",replica="{one.name}",outcome="ok"}}'] = (
            300 * seconds
        )


def test_requests_that_wait_for_a_step_are_no_queue_however_many_they_are() -> None:
    assert codes(window(short_answers)) == []

    def slower(router: Router, seconds: float) -> None:
        short_answers(router, seconds / 10)

    assert codes(window(slower)) == ["engine_queueing"]


def test_one_engine_whose_requests_wait_for_a_step_has_no_more_than_its_share() -> None:
    def one_of_them(router: Router, seconds: float) -> None:
        short_answers(router, seconds)
        for one in router.replicas[1:]:
            one.waiting = 0

    assert codes(window(one_of_them)) == []
