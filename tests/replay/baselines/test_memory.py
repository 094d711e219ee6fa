"""What a rule remembers of the replicas."""

from random import Random

from replicarouter.engines.base import EngineReading
from replicarouter.replay.baselines.memory import Holders, Memory, Turnstile, block_tokens, prompt_tokens
from replicarouter.replay.fleet import ReplayFleet
from tests.replay.scene import BLOCK, ask


def test_holders_are_told_by_how_much_of_the_beginning_they_have() -> None:
    holders = Holders()
    holders.add([1, 2, 3], 0)
    holders.add([1, 2], 4)
    holders.add([2, 3], 8)
    assert holders.leading([1, 2, 3, 4]) == {0: 3, 4: 2}
    assert holders.leading([9, 1]) == {}
    assert holders.leading([]) == {}
    holders.drop([1], 0)
    assert holders.leading([1, 2, 3]) == {4: 2}


def test_holders_agree_with_looking_at_each_replica() -> None:
    random, holders = Random(3), Holders()
    kept: dict[int, set[int]] = {row: set() for row in range(0, 40, 4)}
    for _ in range(400):
        row, start = random.choice(list(kept)), random.randrange(6)
        blocks = list(range(start, start + random.randrange(1, 8)))
        if random.random() < 0.6:
            holders.add(blocks, row)
            kept[row].update(blocks)
        else:
            holders.drop(blocks, row)
            kept[row].difference_update(blocks)
        prompt = list(range(random.randrange(4), 12))
        lengths = {
            row: next((n for n, block in enumerate(prompt) if block not in held), len(prompt))
            for row, held in kept.items()
        }
        assert holders.leading(prompt) == {row: length for row, length in lengths.items() if length}


def test_what_no_longer_fits_into_the_engine_is_forgotten() -> None:
    fleet, memory = ReplayFleet(2), Memory()
    one, other = fleet.replicas
    fleet.read(one, EngineReading(kv_capacity=3.0 * BLOCK), 0.0)
    memory.sent(ask(1, 2), one)
    memory.sent(ask(1, 2), other)
    memory.sent(ask(7, 8), one)
    memory.sent(ask(7, 8), other)
    assert memory.leading(ask(1, 2)) == {one.row: 1, other.row: 2}
    memory.forget(other)
    assert memory.leading(ask(1, 2)) == {one.row: 1}


def test_equal_costs_take_turns() -> None:
    turnstile = Turnstile()
    assert [turnstile.least([1, 0, 0, 1, 0]) for _ in range(5)] == [1, 2, 4, 1, 2]
    assert turnstile.least([3.0]) == 0


def test_sizes_of_a_request() -> None:
    assert (block_tokens(ask(1, 2)), prompt_tokens(ask(1, 2))) == (BLOCK, 2 * BLOCK)
