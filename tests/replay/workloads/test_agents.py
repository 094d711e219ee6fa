"""Agents in tool loops."""

from random import Random
from statistics import fmean

import pytest

from replicarouter.replay.workloads.agents import AGENTS, FEWEST_TURNS, KINDS, MOST_TURNS, draw


def test_agents_take_many_turns_with_more_to_read_than_to_say() -> None:
    random = Random(2)
    plans = [draw(random) for _ in range(2000)]
    counts = {len(plan.steps) for plan in plans}
    assert (min(counts), max(counts)) == (FEWEST_TURNS, MOST_TURNS)
    assert fmean(len(plan.steps) for plan in plans) == pytest.approx(AGENTS.turns, rel=0.05)
    steps = [step for plan in plans for step in plan.steps]
    assert fmean(step.added for step in steps) > 4 * fmean(step.reply for step in steps)
    assert fmean(step.delay for step in steps) < 5.0


def test_agents_of_one_kind_share_their_instructions() -> None:
    random = Random(2)
    assert len({plan.head for plan in (draw(random) for _ in range(200))}) == KINDS
