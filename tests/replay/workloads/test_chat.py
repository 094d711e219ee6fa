"""People who chat."""

from random import Random
from statistics import fmean

import pytest

from replicarouter.replay.workloads.chat import CHAT, MEAN_REPLY, MEAN_THINKING, MOST_TURNS, draw


def test_chats_have_the_lengths_that_their_shape_promises() -> None:
    random = Random(2)
    plans = [draw(random) for _ in range(4000)]
    steps = [step for plan in plans for step in plan.steps]
    assert fmean(len(plan.steps) for plan in plans) == pytest.approx(CHAT.turns, rel=0.05)
    assert max(len(plan.steps) for plan in plans) == MOST_TURNS
    assert fmean(step.reply for step in steps) == pytest.approx(MEAN_REPLY, rel=0.05)
    assert fmean(step.delay for step in steps) == pytest.approx(MEAN_THINKING, rel=0.05)


def test_all_share_one_system_prompt() -> None:
    random = Random(2)
    assert len({(plan.head, plan.head_tokens) for plan in (draw(random) for _ in range(50))}) == 1
