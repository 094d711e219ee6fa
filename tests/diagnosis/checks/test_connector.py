"""Requests that wait for a connection."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def published(router: Router, _: float) -> None:
    """256 users, a limit of 100, eight replicas: 100 run, 156 wait for a slot, no engine has a queue."""
    router.connector_limit, router.connector_waiting, router.held = 100, 156, 3.2
    for one in router.replicas:
        one.connecting, one.streaming = 19.5, 12.5


@pytest.mark.parametrize("looks", [1, 2, 11])
def test_the_published_defect_is_named_with_its_numbers_and_its_setting(looks: int) -> None:
    verdict = only(window(published, looks=looks))
    assert (verdict.code, verdict.side, verdict.setting) == (
        "connector_limit",
        Side.ROUTER,
        "connector.limit",
    )
    assert verdict.evidence[0] == "running 100, connecting 156, of 256 in flight"
    assert verdict.evidence[1].endswith("8 of 8 ready replicas would take more at once")
    assert verdict.cure == (
        "connector.limit: now 100; set it to at least 512 (--connector-limit), or 0 for no limit"
    )


def test_those_that_wait_for_a_slot_are_told_where_others_connect_too() -> None:
    def some(router: Router, seconds: float) -> None:
        published(router, seconds)
        router.connector_waiting = 140

    assert "connecting 156 (140 of them wait for a slot), of" in only(window(some)).evidence[0]


def test_more_expected_requests_ask_for_a_higher_limit() -> None:
    assert "at least 2048 " in only(window(published), concurrency=1000).cure


def test_without_readings_the_limit_is_still_named() -> None:
    def silent(router: Router, seconds: float) -> None:
        published(router, seconds)
        for one in router.replicas:
            one.fresh, one.engine = False, "generic"

    verdict = only(window(silent))
    assert verdict.code == "connector_limit"
    assert "do not tell" in verdict.evidence[1]


def test_below_the_limit_of_all_it_is_the_limit_of_each() -> None:
    def each(router: Router, seconds: float) -> None:
        published(router, seconds)
        router.connector_limit, router.connector_limit_per_replica, router.busy = 0, 13, 100

    verdict = only(window(each))
    assert (verdict.code, verdict.setting) == ("connector_limit", "connector.limit_per_replica")
    assert verdict.cure.startswith("connector.limit_per_replica: now 13;")


def engines_queue_too(router: Router, seconds: float) -> None:
    published(router, seconds)
    for one in router.replicas:
        one.waiting = 3


def limit_not_reached(router: Router, _: float) -> None:
    router.connector_limit = 512


def momentary(router: Router, seconds: float) -> None:
    if seconds in {1, 3}:
        published(router, seconds)
    router.connector_limit = 100


def passing_through(router: Router, seconds: float) -> None:
    """A slot is always free within a few milliseconds."""
    published(router, seconds)
    router.connector_waiting, router.held = 2, 0.01
    for one in router.replicas:
        one.connecting = 0.25


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (engines_queue_too, ["engine_queueing"]),
        (limit_not_reached, []),
        (momentary, []),
        (passing_through, []),
    ],
)
def test_what_looks_like_it_is_told_from_it(change: Change, found: list[str]) -> None:
    assert codes(window(change)) == found


@pytest.mark.parametrize(("opening", "others"), [(10, 16), (2, 0.5)])
def test_some_that_connect_are_no_finding(opening: float, others: float) -> None:
    def some(router: Router, _: float) -> None:
        for one in router.replicas:
            one.streaming = others
        router[2].connecting = opening

    assert codes(window(some)) == []


def test_connections_that_open_slowly_are_told_from_a_limit() -> None:
    def slow(router: Router, seconds: float) -> None:
        router[2].connecting = 20
        router.more |= {
            'connect_seconds_sum{replica="r2"}': 8 * seconds,
            'connect_seconds_count{replica="r2"}': 10 * seconds,
        }

    verdict = only(window(slow))
    assert (verdict.code, verdict.side, verdict.replica) == ("slow_connections", Side.ELSEWHERE, "r2")
    assert verdict.evidence[2].startswith("800 ms")


def one_pool_full(router: Router, _: float) -> None:
    """Seven replicas of one model have queues; requests for another wait here, and its engine is idle."""
    router.connector_limit, router.connector_waiting, router.held = 100, 28, 3.0
    router.more |= {'policy_info{model="n",policy="session"}': 1, 'requests_queued{model="n"}': 0}
    for one in router.replicas[:7]:
        one.streaming, one.waiting, one.connecting = 14, 4, 2
    router[7].model, router[7].streaming, router[7].connecting = "n", 2, 14


def test_a_pool_that_starves_behind_the_queue_of_another_is_the_routers_limit() -> None:
    limit, queueing = judged(window(one_pool_full))
    assert (limit.code, limit.side, queueing.code) == ("connector_limit", Side.ROUTER, "engine_queueing")
    assert "waiting in the router: 14, behind them" in queueing.evidence


def test_the_limit_of_each_is_judged_by_the_replicas_that_have_reached_it() -> None:
    def each(router: Router, seconds: float) -> None:
        published(router, seconds)
        router.connector_limit, router.connector_limit_per_replica, router.busy = 0, 13, 100
        router[0].waiting = 3

    assert "connector_limit" not in codes(window(each))
