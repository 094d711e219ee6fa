"""Prompts with long common heads."""

from random import Random
from statistics import fmean

import pytest

from replicarouter.replay.workloads.shared_prefix import (
    GROUPS,
    LONGEST,
    MIXED_GROUPS,
    REUSED,
    SHORTEST,
    SYSTEM_TOKENS,
    TURNS,
    grouped,
    mixed,
    one_for_all,
)


def test_everybody_is_behind_the_one_system_prompt() -> None:
    random = Random(1)
    plans = [one_for_all(random) for _ in range(100)]
    assert {(plan.head, plan.head_tokens, len(plan.steps)) for plan in plans} == {(200, SYSTEM_TOKENS, TURNS)}


def test_groups_have_a_system_prompt_each() -> None:
    random = Random(1)
    assert len({grouped(random).head for _ in range(5000)}) == GROUPS


def test_three_quarters_of_a_mixed_prompt_are_its_groups_text() -> None:
    random = Random(1)
    plans = [mixed(random) for _ in range(5000)]
    lengths = [plan.head_tokens + plan.steps[0].added for plan in plans]
    assert SHORTEST <= min(lengths) < SHORTEST * 1.05
    assert LONGEST * 0.95 < max(lengths) <= LONGEST
    assert fmean(length < 5793 for length in lengths) == pytest.approx(0.5, abs=0.03)
    assert sum(plan.head_tokens for plan in plans) / sum(lengths) == pytest.approx(REUSED, abs=0.01)
    assert len({plan.head for plan in plans}) == MIXED_GROUPS
