"""A replica that has requests and does nothing."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, judged, only, window


def telling_nothing(router: Router) -> None:
    for one in router.replicas:
        one.fresh, one.engine = False, "generic"


def judged_so(router: Router, seconds: float) -> None:
    router[2].stalled, router[2].state, router[2].silence = 1, "unhealthy", 31 + seconds
    router[2].steps, router[2].gaps = 5000, 60000


def frozen(router: Router, seconds: float) -> None:
    router[2].silence, router[2].steps, router[2].gaps = 4 + seconds, 5000, 60000


def silent_without_readings(router: Router, seconds: float) -> None:
    telling_nothing(router)
    router[2].silence = 8 + seconds


@pytest.mark.parametrize("change", [judged_so, frozen, silent_without_readings])
def test_a_replica_that_does_nothing_is_named(change: Change) -> None:
    verdict = only(window(change))
    assert (verdict.code, verdict.side, verdict.replica) == ("stalled_replica", Side.ELSEWHERE, "r2")
    assert verdict.evidence[0] == "it has 16 requests"
    assert ("its engine made no step in the whole window of 5 s" in verdict.evidence) is (
        change is not silent_without_readings
    )
    assert "`replicarouter replicas drain r2`" in verdict.cure
    assert "silent for health.stall_end are ended" in verdict.cure


def test_the_routers_own_finding_is_told_by_one_page() -> None:
    assert codes(window(judged_so, looks=1)) == ["stalled_replica"]


def computes_a_long_prompt(router: Router, seconds: float) -> None:
    """Its engine steps, chunk by chunk."""
    router[2].silence = 40 + seconds


def idle(router: Router, _: float) -> None:
    router[2].steps, router[2].streaming, router[2].silence = 5000, 0, 0


def steps_told_late(router: Router, seconds: float) -> None:
    """Bytes come; only the readings are old."""
    router[2].steps = 5000


def briefly_silent(router: Router, seconds: float) -> None:
    router[2].silence = 2.0


def silent_without_readings_for_a_prompt(router: Router, seconds: float) -> None:
    telling_nothing(router)
    router[2].silence = 1 + seconds


@pytest.mark.parametrize(
    "change",
    [computes_a_long_prompt, idle, steps_told_late, briefly_silent, silent_without_readings_for_a_prompt],
)
def test_what_looks_like_it_is_told_from_it(change: Change) -> None:
    assert codes(window(change)) == []


def test_an_engine_whose_metrics_have_gone_silent_with_it_is_suspected_as_soon() -> None:
    def mute(router: Router, seconds: float) -> None:
        router[2].fresh, router[2].silence, router[2].age = False, 1 + seconds, 1 + seconds

    found = judged(window(mute))
    assert (found[0].code, found[0].replica) == ("stalled_replica", "r2")
    assert "its `/metrics` has not answered for 6 s either" in found[0].evidence
