import pytest

from replicarouter.simulator.plans import (
    LONGEST_ANSWER,
    LONGEST_THOUGHT,
    SHORTEST_ANSWER,
    SHORTEST_THOUGHT,
    Wish,
    cut_short,
    plan_answer,
)
from replicarouter.simulator.tools import ToolCall

CALL = ToolCall("clock", ("{", "}"))
SEEDS = range(200)


@pytest.mark.parametrize("budget", [1, 2, 100, SHORTEST_ANSWER - 1])
def test_small_budget_is_used_up(budget: int) -> None:
    for seed in SEEDS:
        plan = plan_answer(Wish(budget=budget), seed)
        assert (plan.tokens, plan.finish_reason) == (budget, "length")


def test_answer_with_room_ends_by_itself() -> None:
    lengths = set()
    for seed in SEEDS:
        plan = plan_answer(Wish(budget=10_000), seed)
        assert plan.finish_reason == "stop"
        lengths.add(plan.tokens)
    assert SHORTEST_ANSWER <= min(lengths) < max(lengths) <= LONGEST_ANSWER
    assert len(lengths) > 50


def test_ignoring_the_end_fills_the_budget() -> None:
    plan = plan_answer(Wish(budget=10_000, endless=True), 1)
    assert (plan.tokens, plan.finish_reason) == (10_000, "length")


@pytest.mark.parametrize("budget", [1, 2, 9, 100, 10_000])
def test_reasoning_comes_out_of_the_budget_and_leaves_room_for_text(budget: int) -> None:
    plan = plan_answer(Wish(budget=budget, reasoning=True), 7)
    assert 1 <= plan.reasoning <= max(1, budget // 2)
    assert plan.tokens <= budget
    if budget > 2 * LONGEST_THOUGHT:
        assert SHORTEST_THOUGHT <= plan.reasoning <= LONGEST_THOUGHT


def test_tool_call_takes_the_place_of_text() -> None:
    plan = plan_answer(Wish(budget=100, call=CALL), 1)
    assert plan.text == 0
    assert plan.tokens == 1 + len(CALL.pieces) + 1
    assert (plan.finish_reason, plan.engine_reason) == ("tool_calls", "stop")


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_tool_call_is_cut_at_the_budget(budget: int) -> None:
    plan = plan_answer(Wish(budget=budget, call=CALL), 1)
    assert plan.tokens == budget
    assert plan.call == ToolCall("clock", CALL.pieces[: budget - 1])
    assert (plan.finish_reason, plan.engine_reason) == ("length", "length")


def test_reasoning_alone_may_use_up_the_budget_of_a_call() -> None:
    plan = plan_answer(Wish(budget=1, reasoning=True, call=CALL), 1)
    assert (plan.reasoning, plan.call, plan.finish_reason) == (1, None, "length")


def test_answer_begins_with_the_word_it_is_to_say() -> None:
    plain, plan = plan_answer(Wish(budget=1000), 1), plan_answer(Wish(budget=1000, word="marzipan"), 1)
    assert "".join(plan.lead) == "marzipan.   "
    assert (plan.tokens, plan.finish_reason) == (plain.tokens, plain.finish_reason)


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_word_is_cut_at_the_budget(budget: int) -> None:
    plan = plan_answer(Wish(budget=budget, word="marzipan"), 1)
    assert plan.lead == ("marz", "ipan", ".   ")[:budget]
    assert (plan.tokens, plan.finish_reason) == (budget, "length")


@pytest.mark.parametrize("produced", range(8))
def test_answer_that_is_cut_short_has_what_was_produced(produced: int) -> None:
    wish = Wish(budget=6, reasoning=True, word="marzipan")
    plan = cut_short(plan_answer(wish, 1), produced)
    assert plan.tokens == min(produced, 6)
