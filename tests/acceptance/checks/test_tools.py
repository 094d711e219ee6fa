"""Calls come back where they are wanted, and fit."""

from replicarouter.acceptance import Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

CALLS = Wishes(tools=True)


async def test_tools_that_are_ignored_fail_with_the_flags(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one"), Scripted("two", tools="ignore"), wishes=CALLS)
    assert finding.status is Status.FAIL
    assert "tool_choice required, whole: no call comes back" in finding.why
    assert "tool_choice named, streamed: no call comes back" in finding.why
    assert "--tool-call-parser" in finding.cure


async def test_arguments_that_are_no_json_fail(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one", tools="garble"), wishes=CALLS)
    assert (finding.status, "its arguments are no JSON" in finding.why) == (Status.FAIL, True)


async def test_arguments_that_do_not_fit_fail(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one", tools="stray"), wishes=CALLS)
    assert (finding.status, "do not fit the schema" in finding.why) == (Status.FAIL, True)


async def test_refusals_fail_where_calls_were_asked_for(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one", tools="refuse"), wishes=CALLS)
    assert (finding.status, "400: no tool parser" in finding.why) == (Status.FAIL, True)


async def test_refusals_are_told_plainly_where_calls_were_not_asked_for(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one", tools="refuse"))
    assert (finding.status, "calls were not asked for" in finding.why) == (Status.SKIPPED, True)
    assert "--tools" in finding.cure


async def test_tools_that_were_not_asked_for_are_only_accepted(examine: Examine) -> None:
    finding = await examine("tools", Scripted("one", tools="ignore"))
    assert (finding.status, "not asked for" in finding.why) == (Status.PASS, True)


async def test_replicas_that_disagree_on_tools_fail_though_calls_were_not_asked_for(examine: Examine) -> None:
    fleet = Scripted("one"), Scripted("two", tools="refuse"), Scripted("three")
    finding = await examine("tools", *fleet)
    assert finding.status is Status.FAIL
    assert finding.why == "tools are refused at two (400: no tool parser) and accepted at the others"
    assert "the same flags" in finding.cure
