"""What is learned from how prompts are answered."""

import pytest

from replicarouter.policies.prefill import FIRST_SPEED, FIRST_TOKENS_PER_CHARACTER, Speed, Tokens


def test_tokens_are_guessed_until_an_engine_says() -> None:
    tokens = Tokens()
    assert tokens.per_character == FIRST_TOKENS_PER_CHARACTER

    tokens.learn(4000, 800)
    assert tokens.per_character == pytest.approx(0.2)


def test_tokens_follow_other_texts_slowly() -> None:
    tokens = Tokens()
    tokens.learn(1000, 200)
    tokens.learn(1000, 1000)
    assert 0.2 < tokens.per_character < 0.3
    for _ in range(200):
        tokens.learn(1000, 1000)
    assert tokens.per_character == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("characters", "tokens"), [(100, 90), (4000, 0), (0, 0), (0, 5), (4000, -1)])
def test_short_and_silent_answers_teach_nothing(characters: int, tokens: int) -> None:
    learned = Tokens()
    learned.learn(characters, tokens)
    assert learned.per_character == FIRST_TOKENS_PER_CHARACTER


def test_the_speed_is_that_of_a_replica_at_its_best() -> None:
    speed = Speed()
    for number in range(500):
        seconds = 0.25 if number % 10 == 0 else 1.0  # mostly held up by something else
        speed.learn(5000, seconds)

    assert 14_000 < speed.tokens_per_second <= 20_000


@pytest.mark.parametrize(("tokens", "seconds"), [(100, 0.001), (5000, 0.0), (5000, -1.0), (0, 1.0)])
def test_nothing_is_learned_from_what_tells_nothing(tokens: float, seconds: float) -> None:
    speed = Speed()
    speed.learn(tokens, seconds)
    assert speed.tokens_per_second == FIRST_SPEED
