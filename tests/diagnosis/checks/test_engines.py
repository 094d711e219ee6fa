"""What engines tell of themselves."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def test_a_reading_that_is_old_is_missed() -> None:
    def lost(router: Router, seconds: float) -> None:
        router[3].fresh, router[3].age = False, 7 + seconds

    verdict = only(window(lost))
    assert (verdict.code, verdict.side, verdict.replica) == ("readings_missing", Side.ELSEWHERE, "r3")
    assert verdict.evidence == ("no fresh reading of r3", "the last one is 12 s old")


def test_an_engine_that_never_told_anything_is_noted() -> None:
    def never(router: Router, _: float) -> None:
        router[3].fresh, router[3].age = False, None

    verdict = only(window(never))
    assert (verdict.code, verdict.side) == ("readings_missing", Side.NOTE)


def test_an_engine_of_a_kind_that_tells_nothing_is_no_finding() -> None:
    def generic(router: Router, _: float) -> None:
        for one in router.replicas:
            one.fresh, one.engine = False, "generic"

    assert codes(window(generic)) == []


@pytest.mark.parametrize("looks", [1, 6])
def test_series_that_are_gone_are_named(looks: int) -> None:
    def gone(router: Router, _: float) -> None:
        router[3].absent = ("vllm:num_requests_waiting", "vllm:num_preemptions_total")

    verdict = only(window(gone, looks=looks))
    assert (verdict.code, verdict.side, verdict.replica) == ("series_missing", Side.ELSEWHERE, "r3")
    assert verdict.evidence == (
        "2 series missing at r3",
        "absent: vllm:num_preemptions_total, vllm:num_requests_waiting",
    )


def test_series_without_which_the_ledger_is_whole_are_only_noted() -> None:
    def gone(router: Router, _: float) -> None:
        router[3].absent = ("vllm:num_preemptions_total",)

    assert only(window(gone)).side is Side.NOTE


def version(router: Router, _: float) -> None:
    router[3].version = "0.31.0"


def model(router: Router, _: float) -> None:
    router[3].model = "other"


def engine(router: Router, _: float) -> None:
    router[3].engine = "sglang"


def max_length(router: Router, _: float) -> None:
    router[3].max_length = 8192


def cache_dtype(router: Router, _: float) -> None:
    router[3].cache_dtype = "fp8"


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (version, "version: 0.31.0 at r3; 0.32.0 at r0, r1, r2 and 4 more"),
        (model, "model: m at r0, r1, r2 and 4 more; other at r3"),
        (engine, "engine: sglang at r3; vllm at r0, r1, r2 and 4 more"),
        (max_length, "max length: 32,768 at r0, r1, r2 and 4 more; 8,192 at r3"),
        (cache_dtype, "cache dtype: auto at r0, r1, r2 and 4 more; fp8 at r3"),
    ],
)
@pytest.mark.parametrize("looks", [1, 6])
def test_engines_that_are_not_alike_are_told(change: Change, difference: str, looks: int) -> None:
    verdict = only(window(change, looks=looks))
    assert (verdict.code, verdict.side) == ("engines_differ", Side.ELSEWHERE)
    assert verdict.evidence[0] == difference
    assert "no engine tells the dtype of its weights" in verdict.evidence[1]


def two_pools(router: Router, _: float) -> None:
    router.more['policy_info{model="n",policy="session"}'] = 1
    for one in router.replicas[4:]:
        one.model, one.version, one.max_length, one.cache_dtype = "n", "0.31.0", 8192, "fp8"


def untold(router: Router, _: float) -> None:
    router[3].max_length, router[3].version, router[3].cache_dtype = None, "", ""


@pytest.mark.parametrize("change", [two_pools, untold])
def test_engines_of_two_pools_may_differ_and_need_not_tell_everything(change: Change) -> None:
    assert codes(window(change)) == []


def test_a_restarted_engine_is_told() -> None:
    def again(router: Router, seconds: float) -> None:
        router[3].restarts = 2 + float(seconds >= 3)
        router[3].steps = seconds if seconds >= 3 else 9000 + 70 * seconds

    verdict = only(window(again))
    assert (verdict.code, verdict.side, verdict.replica) == ("engine_restarted", Side.ELSEWHERE, "r3")


def test_a_restart_of_the_past_is_no_finding() -> None:
    def before(router: Router, _: float) -> None:
        router[3].restarts = 2

    assert codes(window(before)) == []
    assert codes(window(before, looks=1)) == []
