"""Prompts are new every time, and as long as wanted."""

from random import Random

import pytest

from replicarouter.acceptance.prompts import Prompts


def test_no_two_prompts_begin_alike() -> None:
    prompts = Prompts(Random(1))
    beginnings = [prompts.filler(500)[:20] for _ in range(50)]
    beginnings += [str(prompts.small()[0]["content"])[:20] for _ in range(50)]
    beginnings += [str(prompts.parrot()[0]["content"])[:20] for _ in range(50)]
    assert len(set(beginnings)) == 150


@pytest.mark.parametrize("size", [1, 500, 20_000])
def test_filler_is_about_as_long_as_wanted(size: int) -> None:
    assert size <= len(Prompts(Random(1)).filler(size)) <= size + 120


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_is_at_its_depth(depth: float) -> None:
    text = Prompts(Random(1)).haystack(10_000, "velvetraven", depth)
    sentence = "The secret word is velvetraven."
    assert text.count(sentence) == 1
    assert abs(text.index(sentence) / len(text) - depth) < 0.05


def test_a_secret_is_one_word_that_the_filler_does_not_have() -> None:
    prompts = Prompts(Random(1))
    filler = prompts.filler(50_000)
    secrets = {prompts.secret() for _ in range(20)}
    assert len(secrets) > 15
    assert all(secret.isalpha() and secret not in filler for secret in secrets)
