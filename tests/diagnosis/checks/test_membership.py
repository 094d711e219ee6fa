"""Replicas that take nothing."""

import pytest

from replicarouter.diagnosis.verdict import Side
from replicarouter.diagnosis.window import Window
from tests.diagnosis.pages import STATES, Router, codes, fleet, judged, only, snapshot, window


@pytest.mark.parametrize("state", [state for state in STATES if state != "ready"])
def test_a_replica_that_takes_nothing_is_named_with_its_state(state: str) -> None:
    def out(router: Router, _: float) -> None:
        router[3].state, router[3].streaming = state, 0

    verdict = only(window(out))
    assert (verdict.code, verdict.replica) == ("replica_out", "r3")
    assert verdict.title == "1 replica of 8 takes no requests"
    assert verdict.evidence == (f"{state}: r3",)
    assert verdict.side is (Side.NOTE if state == "draining" else Side.ELSEWHERE)


def test_a_drained_replica_is_noted_behind_what_limits() -> None:
    def drained(router: Router, _: float) -> None:
        router[3].state, router[3].streaming = "draining", 0
        for one in (*router.replicas[:3], *router.replicas[4:]):
            one.waiting = 5

    found = judged(window(drained))
    assert [verdict.code for verdict in found] == ["engine_queueing", "replica_out"]
    assert "1 replica of 8 out of service" in found[0].evidence
    assert found[1].cure == "`replicarouter replicas undrain r3` gives it requests again"


def test_a_replica_that_was_out_and_is_back_is_none_of_them() -> None:
    def back(router: Router, seconds: float) -> None:
        router[3].state = "loading" if seconds < 2 else "ready"

    assert codes(window(back)) == []


def test_a_fleet_in_which_nobody_takes_anything_is_named_first() -> None:
    def down(router: Router, seconds: float) -> None:
        refused = 'requests_total{endpoint="e",model="m",replica="",outcome="no_replica"}'
        router.more[refused] = 3 * seconds
        for one in router.replicas:
            one.state, one.streaming, one.fresh = "unhealthy", 0, False

    verdict = only(window(down))
    assert (verdict.code, verdict.title) == ("no_replica", "No replica of m takes requests")
    assert verdict.evidence[1] == "15 requests were refused for it"


def test_a_router_without_replicas_is_named() -> None:
    assert codes(window(replicas=0)) == ["no_replica"]


def test_nothing_is_concluded_from_what_a_cut_page_lacks() -> None:
    page = fleet(0).page()
    cut = snapshot(page[: page.index("# TYPE replicarouter_replica_state")])
    assert "no_replica" not in codes(Window([cut]))
