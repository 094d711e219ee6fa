"""Several findings become one."""

from replicarouter.acceptance.finding import Finding, Result, Status, failed, passed, skipped, warned, worst


def test_the_worst_counts_with_the_reasons_and_cures_of_its_like() -> None:
    findings = [passed("fine", a=1), failed("one", "cure one"), warned("hm", "w"), failed("two", "cure two")]
    one = worst(findings)
    assert (one.status, one.why, one.cure) == (Status.FAIL, "one; two", "cure one; cure two")
    assert one.figures == {"a": 1}


def test_a_warning_outweighs_what_was_skipped_and_that_outweighs_a_pass() -> None:
    assert worst([passed("a"), skipped("b")]).status is Status.SKIPPED
    assert worst([warned("a"), skipped("b"), passed("c")]).status is Status.WARN


def test_a_reason_that_comes_twice_is_told_once() -> None:
    assert worst([failed("same", "c"), failed("same", "c")]).why == "same"


def test_a_result_has_a_document() -> None:
    finding = Finding(status=Status.FAIL, why="w", cure="c", figures={"n": 1})
    result = Result(name="usage", model="m1", finding=finding, seconds=0.12345)
    assert result.document() == {
        "name": "usage",
        "model": "m1",
        "status": "fail",
        "why": "w",
        "cure": "c",
        "seconds": 0.123,
        "figures": {"n": 1},
    }
