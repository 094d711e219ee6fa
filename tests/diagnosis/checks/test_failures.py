"""Requests that are refused, fail or are tried again."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def ended(router: Router, outcome: str, count: float, replica: str = "r1") -> None:
    series = f'requests_total{{endpoint="e",model="m",replica="{replica}",outcome="{outcome}"}}'
    router.more[series] = 500 + count


def refused(router: Router, seconds: float) -> None:
    router.more['shed_total{reason="queue_timeout"}'] = 2 * seconds
    router.more['shed_total{reason="queue_full"}'] = seconds


def test_refused_requests_are_told_with_the_limit_that_refused_them() -> None:
    verdict = only(window(refused))
    assert (verdict.code, verdict.side, verdict.setting) == (
        "requests_shed",
        Side.ROUTER,
        "admission.queue_timeout",
    )
    assert verdict.evidence[0] == "queue_full: 5; queue_timeout: 10"
    assert verdict.cure == "admission.queue_timeout: now 60; raise it (--queue-timeout)"


def test_refusals_of_a_full_fleet_are_not_the_routers_limit() -> None:
    def full(router: Router, seconds: float) -> None:
        refused(router, seconds)
        for one in router.replicas:
            one.waiting = 8

    queueing, shed = judged(window(full))
    assert (queueing.code, shed.code, shed.side) == ("engine_queueing", "requests_shed", Side.ELSEWHERE)


def test_requests_that_fail_at_one_replica_name_it() -> None:
    def fails(router: Router, seconds: float) -> None:
        ended(router, "replica_disconnected", 8 * seconds)
        ended(router, "upstream_error", seconds, replica="r2")

    verdict = only(window(fails))
    assert (verdict.code, verdict.side, verdict.replica) == ("requests_failing", Side.ELSEWHERE, "r1")
    assert verdict.evidence[0].startswith("45 of 245 requests that ended")
    assert verdict.evidence[1] == "replica_disconnected: 40; upstream_error: 5"


def test_requests_that_fail_everywhere_name_nobody() -> None:
    def fails(router: Router, seconds: float) -> None:
        for number in range(8):
            ended(router, "connect_failed", 2 * seconds, replica=f"r{number}")

    verdict = only(window(fails))
    assert (verdict.title, verdict.replica) == ("Requests fail", "")


def test_many_retries_are_told() -> None:
    def again(router: Router, seconds: float) -> None:
        router.more['retries_total{reason="connect_failed"}'] = 8 * seconds

    verdict = only(window(again))
    assert verdict.code == "retries"
    assert verdict.evidence == ("40 retries for 200 requests", "for: connect_failed")


def a_few_failures(router: Router, seconds: float) -> None:
    ended(router, "replica_disconnected", seconds)


def failures_of_the_past(router: Router, _: float) -> None:
    ended(router, "replica_disconnected", 4000)


def a_few_retries(router: Router, seconds: float) -> None:
    router.more['retries_total{reason="stale"}'] = 2 * seconds


def refusals_of_the_past(router: Router, _: float) -> None:
    router.more['shed_total{reason="queue_full"}'] = 400


@pytest.mark.parametrize(
    "change", [a_few_failures, failures_of_the_past, a_few_retries, refusals_of_the_past]
)
def test_what_happens_in_any_fleet_is_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


def mistaken(router: Router, seconds: float) -> None:
    ended(router, "upstream_error", 10 * seconds)
    router.more['answers_total{replica="r1",kind="4xx"}'] = 100 + 10 * seconds


def test_what_engines_refuse_as_wrong_is_the_clients_and_only_noted() -> None:
    verdict = only(window(mistaken))
    assert (verdict.code, verdict.side) == ("requests_mistaken", Side.NOTE)
    assert verdict.evidence == ("50 of 250 requests that ended (20%)",)


def test_failures_are_told_beside_them() -> None:
    def both(router: Router, seconds: float) -> None:
        mistaken(router, seconds)
        ended(router, "upstream_error", 18 * seconds)

    failing, noted = judged(window(both))
    assert (failing.code, failing.replica, noted.code) == ("requests_failing", "r1", "requests_mistaken")
    assert failing.evidence[1] == "upstream_error: 40"


def test_busy_engines_are_no_mistake_of_clients() -> None:
    def busy(router: Router, seconds: float) -> None:
        ended(router, "upstream_error", 10 * seconds)
        router.more['answers_total{replica="r1",kind="429"}'] = 100 + 10 * seconds

    assert codes(window(busy)) == ["requests_failing"]
