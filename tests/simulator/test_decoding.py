import random

import pytest

from replicarouter.simulator.decoding import Decoding
from replicarouter.simulator.sequences import Sequence

BLOCK = 4


def joined(decoding: Decoding, prompt: int, limit: int) -> Sequence:
    """A sequence that has its first token and decodes."""
    sequence = Sequence(prompt_tokens=prompt, limit=limit)
    sequence.base = 1
    decoding.join(sequence)
    return sequence


def test_every_member_gets_a_token_in_every_step() -> None:
    decoding = Decoding(BLOCK)
    first = joined(decoding, 5, 10)
    decoding.advance(3)
    second = joined(decoding, 5, 10)
    decoding.advance(2)
    assert (first.produced, second.produced) == (6, 3)
    assert decoding.latest() is second


def test_complete_ones_leave_in_the_order_in_which_they_joined() -> None:
    decoding = Decoding(BLOCK)
    late, one, other = (joined(decoding, 5, limit) for limit in (9, 4, 4))
    assert decoding.steps_to_next_end() == 3
    assert decoding.advance(3) == [one, other]
    assert (one.produced, one.clock) == (4, None)
    assert list(decoding.members) == [late]
    assert decoding.steps_to_next_end() == 5


def test_one_that_left_does_not_end() -> None:
    decoding = Decoding(BLOCK)
    gone, stays = joined(decoding, 5, 4), joined(decoding, 5, 6)
    decoding.advance(1)
    decoding.leave(gone)
    assert gone.produced == 2
    assert decoding.steps_to_next_end() == 4
    assert decoding.advance(4) == [stays]
    assert gone.produced == 2


def test_one_that_comes_back_ends_once() -> None:
    decoding = Decoding(BLOCK)
    sequence = joined(decoding, 5, 4)
    decoding.leave(sequence)
    decoding.join(sequence)
    assert decoding.advance(3) == [sequence]
    assert not decoding.members


@pytest.mark.parametrize("seed", range(5))
def test_demand_is_that_of_every_step(seed: int) -> None:
    """A step needs a block for each sequence whose tokens but the latest fill whole blocks."""
    chance = random.Random(seed)
    decoding = Decoding(BLOCK)
    for _ in range(chance.randint(1, 6)):
        joined(decoding, chance.randint(1, 20), 100)
        decoding.advance(chance.randint(0, 5))
    expected = 0
    for steps in range(1, 20):
        tokens = [sequence.tokens + steps - 1 for sequence in decoding.members]
        expected += sum((count - 1) % BLOCK == 0 for count in tokens)
        assert decoding.demand(steps) == expected


def test_member_that_skips_ends_sooner_and_needs_its_blocks_sooner() -> None:
    decoding = Decoding(BLOCK)
    fast, slow = joined(decoding, 5, 9), joined(decoding, 5, 9)
    decoding.skip(fast, 2)
    assert (fast.produced, slow.produced) == (3, 1)
    assert decoding.steps_to_next_end() == 6
    assert [decoding.demand(steps) for steps in range(1, 6)] == [0, 1, 1, 2, 2]
    assert decoding.advance(6) == [fast]
    assert decoding.advance(2) == [slow]


def test_skipping_leaves_no_trace_in_a_long_run() -> None:
    decoding = Decoding(BLOCK)
    sequence = joined(decoding, 5, 10_000)
    for _ in range(4_000):
        decoding.advance(1)
        decoding.skip(sequence, 1)
    assert len(decoding._ends) < 200
    assert decoding.steps_to_next_end() == 10_000 - sequence.produced
