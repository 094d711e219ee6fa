"""What is asked of a fleet, and in which order where nothing takes time."""

from collections import Counter

from replicarouter.replay.demand import NOMINAL_TOKEN_SECONDS, Turn, digest, in_order, whole_blocks
from tests.replay.scene import Script, turn


def order(demand: Script, seed: int = 1) -> list[int]:
    return [one.blocks[0] for one in in_order(demand, seed)]


def test_single_requests_stay_in_the_order_of_their_coming() -> None:
    assert order(Script([(float(at), [turn(at)]) for at in (0, 0, 3, 3, 9)])) == [0, 0, 3, 3, 9]


def test_a_turn_comes_when_the_answer_before_it_and_the_pause_are_over() -> None:
    answer = 10 * NOMINAL_TOKEN_SECONDS
    script = [(0.0, [turn(1), turn(2, delay=5.0)]), (answer + 4.9, [turn(3)]), (answer + 5.1, [turn(4)])]
    assert order(Script(script)) == [1, 3, 2, 4]


def test_a_turn_does_not_come_before_its_own_time() -> None:
    late = turn(2)
    late.at = 50.0
    assert order(Script([(0.0, [turn(1), late]), (40.0, [turn(3)])])) == [1, 3, 2]


def test_live_conversations_keep_their_number_and_the_order_of_their_turns() -> None:
    script = [(0.0, [turn(name, step) for step in range(5)]) for name in range(20)]
    turns = list(in_order(Script(script, concurrency=4), 3))
    assert Counter(one.blocks[0] for one in turns) == dict.fromkeys(range(20), 5)
    for name in range(20):
        assert [one.blocks[1] for one in turns if one.blocks[0] == name] == list(range(5))
    firsts = [index for index, one in enumerate(turns) if one.blocks[1] == 0]
    lasts = [index for index, one in enumerate(turns) if one.blocks[1] == 4]
    for index in range(len(turns)):
        assert sum(first <= index for first in firsts) - sum(last < index for last in lasts) <= 4


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    demand = Script([(0.0, [turn(name)] * 5) for name in range(20)], concurrency=8)
    assert order(demand, 1) == order(demand, 1) != order(demand, 2)


def test_only_full_blocks_can_be_found() -> None:
    assert whole_blocks(Turn(40, 1, (1, 2, 3)), 16) == (1, 2)
    assert whole_blocks(Turn(48, 1, (1, 2, 3)), 16) == (1, 2, 3)


def test_digests_tell_numbers_apart() -> None:
    assert len({digest(1, 2), digest(12), digest(2, 1), digest(1, -2), digest(1)}) == 5
