"""What the guard says of counts: which are too high and why, and when a budget guards nothing any more."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import call_budget
from benchmarks.call_budget import Budget, verdicts
from benchmarks.call_scenarios import Count

RELAY = "replicarouter/proxy/relay.py:Relay.feed"
PARSE = "aiohttp/web_protocol.py:RequestHandler.data_received"


def count(**rows: Sequence[int]) -> Count:
    named = {"relay": RELAY, "parse": PARSE, "new": "replicarouter/new.py:Cost.of"}
    return Count({named[name]: (*row, 0) for name, row in rows.items()}, {}, {}, 1.0)


BUDGET = Budget.of({"chunk": count(relay=(10, 1000, 10), parse=(90, 1000, 90))})


def test_what_costs_the_same_or_a_little_more_is_within_its_budget() -> None:
    assert not verdicts(BUDGET, {"chunk": count(relay=(10, 1000, 10), parse=(90, 1000, 90))})
    assert not verdicts(BUDGET, {"chunk": count(relay=(12, 1050, 12), parse=(90, 1000, 90))})


def test_growth_is_told_with_the_functions_that_grew_most() -> None:
    told = verdicts(BUDGET, {"chunk": count(relay=(10, 1030, 10), parse=(90, 900, 90), new=(1, 200, 0))})
    assert told == [
        "chunk: 2130 instructions, the budget is 2000 (+6.5%)",
        "    +200 instructions  replicarouter/new.py:Cost.of",
        f"     +30 instructions  {RELAY}",
    ]


@pytest.mark.parametrize(
    ("row", "what"),
    [((14, 1000, 10), "104 calls"), ((10, 1061, 10), "2061 instructions"), ((10, 1000, 14), "104 C calls")],
)
def test_each_kind_has_a_budget_of_its_own(row: Sequence[int], what: str) -> None:
    told = verdicts(BUDGET, {"chunk": count(relay=row, parse=(90, 1000, 90))})
    assert [line for line in told if line.startswith(f"chunk: {what}, the budget is")]


def test_a_budget_far_above_what_is_needed_is_to_be_lowered() -> None:
    told = verdicts(BUDGET, {"chunk": count(relay=(10, 790, 10), parse=(90, 1000, 90))})
    assert told == [f"chunk: 1790 instructions, the budget is 2000 (-10.5%): lower it: {call_budget.WRITE}"]


def test_a_scenario_without_a_budget_is_told() -> None:
    assert verdicts(BUDGET, {"short": count(relay=(1, 1, 1))}) == [
        f"short: has no budget; set one: {call_budget.WRITE}"
    ]


def test_other_libraries_than_those_of_the_budget_are_told_with_what_grew() -> None:
    other = Budget(BUDGET.scenarios, {"aiohttp": "3.0"})
    assert not verdicts(other, {"chunk": count(relay=(10, 1000, 10), parse=(90, 1000, 90))})
    told = verdicts(other, {"chunk": count(relay=(10, 2000, 10), parse=(90, 1000, 90))})
    assert told[-1].startswith("the budget was found with {'aiohttp': '3.0'}, and here are {")


def test_a_written_budget_is_read_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_budget, "file_of_budget", lambda: tmp_path / "budgets" / "python.json")
    BUDGET.write()
    assert Budget.read() == BUDGET
