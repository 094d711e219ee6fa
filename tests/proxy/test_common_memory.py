"""Bytes of bodies are bounded over all workers, though not each of them asks the others."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from replicarouter.commons.layout import ALL_BODY_BYTES
from replicarouter.commons.memory import Commons
from replicarouter.proxy.common_memory import CommonBodyMemory
from tests.commons.children import Child


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


def memories(commons: Commons, most: int) -> list[CommonBodyMemory]:
    return [CommonBodyMemory(most, commons.seat(index)) for index in range(2)]


def test_a_small_bound_is_exact(commons: Commons) -> None:
    one, other = memories(commons, 10)
    assert [one.take(6), other.take(5), other.take(4)] == [True, False, True]
    assert (one.held, other.held, commons.header[ALL_BODY_BYTES]) == (6, 4, 10)
    one.give_back(6)
    assert other.take(6)
    other.give_back(10)

    assert commons.header[ALL_BODY_BYTES] == 0


def test_of_a_large_one_a_little_is_set_aside(commons: Commons) -> None:
    most = 2**20
    one, other = memories(commons, most)
    for _ in range(100):
        assert one.take(5000)
        one.give_back(5000)

    assert 0 < commons.header[ALL_BODY_BYTES] <= most >> 9
    assert other.take(most - (most >> 9))
    assert not one.take(most >> 8)


def test_what_is_spare_gives_way_and_leaves_half_to_others(commons: Commons) -> None:
    one, other = memories(commons, 100)

    class Holder:
        def give_way(self) -> None:
            one.give_back(40)

    assert not one.take_spare(51)
    assert one.take_spare(40)
    one.lend(Holder())
    assert not other.take(61)
    assert one.take(90)

    assert (one.held, commons.header[ALL_BODY_BYTES]) == (90, 90)


def take_and_give(commons: Commons, index: int) -> int:
    return asyncio.run(_take_and_give(commons, index))


async def _take_and_give(commons: Commons, index: int) -> int:
    memory, chance = CommonBodyMemory(100_000, commons.seat(index)), random.Random(index)
    held: list[int] = []
    most = 0
    for _ in range(20_000):
        size = chance.randrange(1, 20_000)
        if chance.random() < 0.6 and memory.take(size):
            held.append(size)
        elif held:
            memory.give_back(held.pop())
        most = max(most, commons.header[ALL_BODY_BYTES])
    for size in held:
        memory.give_back(size)
    return most


def test_workers_never_hold_more_together(commons: Commons) -> None:
    children = [Child(take_and_give, commons, index) for index in range(2)]
    most = max(child.result() for child in children)
    assert 80_000 < most <= 100_000
    for index in range(2):
        commons.vacate(index)

    assert commons.header[ALL_BODY_BYTES] == 0
