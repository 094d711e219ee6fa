"""What clients do."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def few(router: Router, _: float) -> None:
    router.clients = 100
    for one in router.replicas:
        one.streaming = 12.5


def test_a_client_with_too_few_connections_is_named() -> None:
    verdict = only(window(few), concurrency=256)
    assert (verdict.code, verdict.side) == ("client_limited", Side.ELSEWHERE)
    assert verdict.evidence[0] == "100 requests in flight, 256 expected"
    assert "clients have 100 connections open, those that read metrics included" in verdict.evidence
    assert "at least 256 connections" in verdict.cure


def test_a_client_that_does_not_use_its_connections_is_told_so() -> None:
    def idle(router: Router, seconds: float) -> None:
        few(router, seconds)
        router.clients = 256

    assert "does not use them" in only(window(idle), concurrency=256).cure


@pytest.mark.parametrize("concurrency", [None, 100, 110])
def test_as_many_as_expected_are_no_finding(concurrency: int | None) -> None:
    assert codes(window(few), concurrency=concurrency) == []


def test_what_waits_in_the_router_is_not_the_clients_doing() -> None:
    def held(router: Router, seconds: float) -> None:
        few(router, seconds)
        router.connector_limit, router.connector_waiting, router.held = 60, 40, 2.0
        for one in router.replicas:
            one.connecting, one.streaming = 5, 7.5

    assert codes(window(held), concurrency=256) == ["connector_limit"]


def test_slow_uploads_are_named() -> None:
    def uploads(router: Router, _: float) -> None:
        router.receiving = 64

    assert codes(window(uploads)) == ["slow_uploads"]


def some_uploads(router: Router, _: float) -> None:
    router.receiving = 20


def uploads_at_times(router: Router, seconds: float) -> None:
    router.receiving = 90 if seconds in {1, 4} else 0


def three_uploads(router: Router, _: float) -> None:
    router.receiving = 3
    for one in router.replicas:
        one.streaming = 0.5


@pytest.mark.parametrize("change", [some_uploads, uploads_at_times, three_uploads])
def test_some_uploads_are_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


@pytest.mark.parametrize(("gone", "ended"), [(4, 40), (0.6, 0)])
def test_some_clients_that_leave_are_no_finding(gone: float, ended: float) -> None:
    def leave(router: Router, seconds: float) -> None:
        router.received = 500 + ended * seconds
        router.more['requests_total{endpoint="e",model="m",replica="r0",outcome="client_gone"}'] = (
            gone * seconds
        )

    assert codes(window(leave)) == []


def test_clients_that_leave_are_noted() -> None:
    def leave(router: Router, seconds: float) -> None:
        gone = 'requests_total{endpoint="e",model="m",replica="r0",outcome="client_gone"}'
        router.more[gone] = 20 * seconds

    verdict = only(window(leave))
    assert (verdict.code, verdict.side) == ("clients_leave", Side.NOTE)
    assert verdict.evidence == ("100 of 300 requests that ended (33%)",)


def test_one_of_a_few_users_may_be_between_two_requests() -> None:
    def few(router: Router, _: float) -> None:
        for number, one in enumerate(router.replicas):
            one.streaming = float(number > 0)

    assert codes(window(few), concurrency=8) == []
    assert codes(window(few), concurrency=9) == ["client_limited"]
