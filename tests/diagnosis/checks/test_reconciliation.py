"""Counts that disagree."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


@pytest.mark.parametrize("looks", [1, 6])
def test_traffic_from_elsewhere_is_named_at_its_replica(looks: int) -> None:
    def foreign(router: Router, _: float) -> None:
        router[4].running = 24

    verdict = only(window(foreign, looks=looks))
    assert (verdict.code, verdict.side, verdict.replica) == ("foreign_traffic", Side.ELSEWHERE, "r4")
    assert verdict.evidence == ("unexplained −8 at r4: it runs or queues 8 more than the 16 from here",)


@pytest.mark.parametrize("looks", [1, 6])
def test_requests_that_no_scheduler_knows_are_named(looks: int) -> None:
    def held(router: Router, _: float) -> None:
        for one in router.replicas:
            one.sent, one.streaming, one.running = 10, 6, 6

    verdict = only(window(held, looks=looks))
    assert (verdict.code, verdict.side, verdict.replica) == ("held_before_scheduler", Side.ELSEWHERE, "")
    assert verdict.evidence == (
        "unexplained +80 of 128 with 8 replicas (62%): r0, r1, r2 and 5 more",
        "without a response head: 80; streaming: 48, and the engines run or queue 48",
    )
    assert (verdict.setting, "clients" in verdict.cure) == ("api_server_count", False)


@pytest.mark.parametrize(("sent", "slow"), [(8, False), (6, False), (4, True), (0, True)])
def test_clients_are_suspected_where_more_is_streaming_than_engines_work_on(sent: float, slow: bool) -> None:
    """Of ten at each replica that no scheduler knows, those without a response head are on their way in."""

    def held(router: Router, _: float) -> None:
        for one in router.replicas:
            one.sent, one.streaming, one.running = sent, 16 - sent, 6

    verdict = only(window(held))
    assert verdict.code == "held_before_scheduler"
    assert verdict.cure.startswith("look at the clients") is slow
    assert (verdict.setting == "") is slow


def test_whole_numbers_add_up() -> None:
    def held(router: Router, seconds: float) -> None:
        router[3].sent, router[3].streaming, router[3].running = (9, 7, 5) if seconds else (10, 6, 6)

    assert only(window(held, looks=2)).evidence[1] == (
        "without a response head: 9; streaming: 7, and the engines run or queue 6"
    )


def test_several_engines_with_traffic_from_elsewhere_are_told_in_whole_numbers() -> None:
    def foreign(router: Router, seconds: float) -> None:
        for one in router.replicas[:2]:
            one.streaming = 5 + (seconds > 2)
            one.running = one.streaming + 8

    verdict = only(window(foreign, looks=2))
    assert verdict.evidence == ("unexplained −16 at r0, r1: they run or queue 16 more than the 11 from here",)


def coming_and_going(router: Router, seconds: float) -> None:
    """Between two readings some come and some go."""
    for number, one in enumerate(router.replicas):
        one.running = 16 + (4, -4)[(number + int(seconds)) % 2]


def some_on_their_way(router: Router, _: float) -> None:
    for one in router.replicas:
        one.running = 14


def a_share_of_many(router: Router, _: float) -> None:
    for one in router.replicas:
        one.streaming, one.running = 100, 93


def stalled(router: Router, _: float) -> None:
    router[2].stalled, router[2].state, router[2].silence = 1, "unhealthy", 31
    router[2].running = 2


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (coming_and_going, []),
        (some_on_their_way, []),
        (a_share_of_many, []),
        (stalled, ["stalled_replica"]),
    ],
)
def test_what_looks_like_it_is_told_from_it(change: Change, found: list[str]) -> None:
    assert codes(window(change)) == found


def test_one_page_is_believed_less() -> None:
    def some(router: Router, _: float) -> None:
        router[4].running = 20

    assert codes(window(some)) == ["foreign_traffic"]
    assert codes(window(some, looks=1)) == []
