from itertools import islice

import orjson
import pytest

from replicarouter.simulator.tokens import (
    ESCAPED_TOKENS,
    count_tokens,
    seed_of,
    text_of,
    token_ids,
    walk,
)


@pytest.mark.parametrize("seed", [0, 1, 1023, 123456789])
def test_streamed_tokens_make_up_the_whole_text(seed: int) -> None:
    pieces = [orjson.loads(b'"%b"' % piece) for piece in islice(walk(ESCAPED_TOKENS, seed), 3000)]
    assert "".join(pieces) == text_of(seed, 0, 3000)
    assert "".join(pieces[700:1700]) == text_of(seed, 700, 1000)


def test_texts_hold_what_a_relay_may_break() -> None:
    text = text_of(0, 0, 2000)
    assert {'"', "\n", "🙂", "東", "é"} <= set(text)


def test_same_prompt_and_seed_give_the_same_answer() -> None:
    assert seed_of(b"hello", 1) == seed_of(b"hello", 1)
    assert len({seed_of(b"hello", 1), seed_of(b"hello", 2), seed_of(b"hallo", 1)}) == 3


@pytest.mark.parametrize(("characters", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (400, 100)])
def test_four_characters_are_a_token(characters: int, tokens: int) -> None:
    assert count_tokens(characters) == tokens
    assert len(token_ids("x" * characters)) == tokens
