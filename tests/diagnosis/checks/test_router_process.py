"""The router's own process."""

import pytest

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.checks.router_process import core_share
from replicarouter.diagnosis.verdict import Expectations, Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def near(router: Router, _: float) -> None:
    router.open_fds, router.max_fds = 900, 1024


def refused(router: Router, seconds: float) -> None:
    """The refused are gone at once, so that no page shows the worst moment."""
    router.open_fds, router.max_fds = 700, 1024
    router.more['shed_total{reason="overloaded"}'] = 20 * seconds


@pytest.mark.parametrize("change", [near, refused])
def test_descriptors_that_run_out_are_named(change: Change) -> None:
    verdict = only(window(change))
    assert (verdict.code, verdict.side, verdict.setting) == (
        "file_descriptors",
        Side.ROUTER,
        "LimitNOFILE",
    )
    assert "of 1,024 descriptors are open" in verdict.evidence[0]
    assert "at least 4096" in verdict.cure


def test_refusals_without_pages_of_descriptors_are_named_for_them() -> None:
    def untold(router: Router, seconds: float) -> None:
        refused(router, seconds)
        router.max_fds = 0

    assert codes(window(untold)) == ["file_descriptors"]


def test_refusals_with_descriptors_to_spare_are_for_bodies() -> None:
    def bodies(router: Router, seconds: float) -> None:
        router.more['shed_total{reason="overloaded"}'] = 20 * seconds

    verdict = only(window(bodies))
    assert (verdict.code, verdict.setting) == ("buffered_bytes", "max_buffered_bytes")


def full_core(router: Router, seconds: float) -> None:
    router.cpu = 40 + 0.97 * seconds


def late(router: Router, seconds: float) -> None:
    router.lag, router.cpu = 0.2, 40 + 0.6 * seconds


def late_for_others(router: Router, seconds: float) -> None:
    router.lag, router.cpu = 0.6, 40 + 0.2 * seconds


@pytest.mark.parametrize("change", [full_core, late, late_for_others])
def test_a_router_short_of_processor_time_is_named(change: Change) -> None:
    verdict = only(window(change))
    assert (verdict.code, verdict.side) == ("router_cpu", Side.ROUTER)
    assert ("too little" in verdict.title) is (change is late_for_others)


def test_lateness_is_told_by_one_page_too() -> None:
    assert codes(window(late, looks=1)) == ["router_cpu"]


def one_late_turn(router: Router, seconds: float) -> None:
    router.lag = 0.9 if seconds == 2 else 0.003


def crowded_machine(router: Router, seconds: float) -> None:
    router.lag, router.cpu = 0.15, 40 + 0.3 * seconds


def many_descriptors(router: Router, _: float) -> None:
    router.open_fds, router.max_fds = 800, 1024


def wrong_time(router: Router, seconds: float) -> None:
    """Two saved pages whose files were copied: seconds of work in what seems to be no time."""
    router.cpu = 40 + 9 * seconds


@pytest.mark.parametrize("change", [one_late_turn, crowded_machine, many_descriptors, wrong_time])
def test_a_busy_router_is_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


def test_the_share_of_a_core_is_known_where_time_is() -> None:
    def used(router: Router, seconds: float) -> None:
        router.cpu = 7 + 0.25 * seconds

    assert core_share(Case(window(used), Expectations())) == pytest.approx(0.25)
    assert core_share(Case(window(used, looks=1), Expectations())) is None
    assert core_share(Case(window(wrong_time), Expectations())) is None


def test_a_restart_between_the_pages_is_noted_and_counters_go_on_from_0() -> None:
    def again(router: Router, seconds: float) -> None:
        if seconds >= 3:
            router.started, router.received, router.cpu = 1065, 130 + 40 * (seconds - 3), seconds / 9

    verdict = only(window(again))
    assert (verdict.code, verdict.side) == ("router_restarted", Side.NOTE)


def test_settings_that_could_not_be_loaded_are_noted() -> None:
    def broken(router: Router, _: float) -> None:
        router.reloaded = 0

    assert codes(window(broken)) == ["reload_failed"]


def test_lateness_is_not_told_by_a_window_as_short_as_its_memory() -> None:
    assert codes(window(late, seconds=2.5)) == []


def test_readings_that_are_late_with_everything_else_are_no_finding_of_their_own() -> None:
    def late_readings(router: Router, seconds: float) -> None:
        late(router, seconds)
        router[0].fresh = False

    assert codes(window(late_readings)) == ["router_cpu"]
