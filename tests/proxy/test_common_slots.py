"""Connector slots over workers: exact, first come first served wherever one waits, and none ever lost."""

import asyncio
import os
import random
import time
from collections.abc import Iterator

import pytest

from replicarouter.admission.bell import Bell
from replicarouter.commons.layout import ALL_SLOTS, ALL_WAITING_FOR_SLOT, ROW, SLOTS
from replicarouter.commons.memory import Commons
from replicarouter.errors import QueueTimeout
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.proxy.common_slots import FEW, CommonSlots
from tests.commons.children import Child
from tests.fakes.wire import eventually
from tests.scene import an_exchange

A, B = 0, ROW
MANY = 2 * FEW * 2
"""A limit of which workers set slots aside."""


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    for _ in range(2):
        made.add_row()
    yield made
    made.close()


def slots_of(commons: Commons, index: int, *, limit: int, each: int = 0, timeout: float = 0.0) -> CommonSlots:
    ledger = WorkerLedger(commons.seat(index))
    return CommonSlots(
        ledger.seat,
        limit=limit,
        limit_per_replica=each,
        timeout=timeout,
        ledger=ledger,
        clock=time.monotonic,
    )


def test_limits_are_over_all_workers(commons: Commons) -> None:
    one, other = (slots_of(commons, index, limit=3, each=2) for index in range(2))
    taken = [one.take_now(A), other.take_now(A), other.take_now(A), other.take_now(B), one.take_now(B)]
    assert taken == [True, True, False, True, False]
    one.give_back(A)

    assert other.take_now(A)
    assert (commons.header[ALL_SLOTS], commons.totals[SLOTS]) == (3, 2)


def test_without_limits_nothing_is_counted(commons: Commons) -> None:
    slots = slots_of(commons, 0, limit=0)

    assert all(slots.take_now(A) for _ in range(100))
    slots.give_back(A)
    assert commons.header[ALL_SLOTS] == 0


def test_of_many_some_are_set_aside_and_the_limit_holds(commons: Commons) -> None:
    one, other = (slots_of(commons, index, limit=MANY) for index in range(2))
    taken = 0
    while one.take_now(A):
        taken += 1
        taken += other.take_now(A)

    assert MANY - 2 <= taken <= MANY
    assert commons.header[ALL_SLOTS] == MANY
    for _ in range(20):
        one.give_back(A)
        one.take_now(A)
    for _ in range(taken // 2):
        one.give_back(A)
        other.give_back(A)
    assert commons.header[ALL_SLOTS] <= 8


async def test_what_is_set_aside_is_given_to_those_that_wait(commons: Commons) -> None:
    one, other = (slots_of(commons, index, limit=MANY) for index in range(2))
    bells = [Bell(slots.seat, [slots]) for slots in (one, other)]
    assert one.take_now(A)
    one.give_back(A)
    while other.take_now(A):
        pass
    waiting = [asyncio.ensure_future(other.wait(A, an_exchange())) for _ in range(3)]
    await eventually(lambda: sum(wait.done() for wait in waiting) == 2, "what was set aside is used")
    assert commons.header[ALL_SLOTS] == MANY
    other.give_back(A)
    await asyncio.wait_for(waiting[2], 5)

    assert commons.header[ALL_WAITING_FOR_SLOT] == 0
    for bell in bells:
        bell.close()


async def test_the_oldest_is_first_wherever_it_waits(commons: Commons) -> None:
    one, other = (slots_of(commons, index, limit=1) for index in range(2))
    bells = [Bell(slots.seat, [slots]) for slots in (one, other)]
    assert one.take_now(A)
    order: list[int] = []

    async def use(slots: CommonSlots, number: int) -> None:
        await slots.wait(A, an_exchange())
        order.append(number)
        slots.give_back(A)

    waiting = []
    for number in range(8):
        waiting.append(asyncio.ensure_future(use((one, other)[number % 2], number)))
        await eventually(lambda: commons.header[ALL_WAITING_FOR_SLOT] == len(waiting), "waits")
    assert not other.take_now(A)
    one.give_back(A)
    await asyncio.gather(*waiting)

    assert order == list(range(8))
    assert commons.header[ALL_SLOTS] == commons.header[ALL_WAITING_FOR_SLOT] == 0
    for bell in bells:
        bell.close()


async def test_a_newcomer_does_not_overtake_who_waits_elsewhere(commons: Commons) -> None:
    one, other = (slots_of(commons, index, limit=3, each=1) for index in range(2))
    assert one.take_now(A)
    waiting = asyncio.ensure_future(other.wait(A, an_exchange()))
    await eventually(lambda: commons.header[ALL_WAITING_FOR_SLOT] == 1, "waits")
    one.seat.slots.give(A, 3, 1)

    assert not one.take_now(A)
    assert one.take_now(B), "nobody waits for that one"
    other.look_again()
    await asyncio.wait_for(waiting, 5)


async def test_a_wait_that_is_too_long_leaves_no_trace(commons: Commons) -> None:
    slots = slots_of(commons, 0, limit=1, timeout=0.01)
    slots.take_now(A)
    with pytest.raises(QueueTimeout):
        await slots.wait(A, an_exchange())
    assert commons.header[ALL_WAITING_FOR_SLOT] == 0
    assert slots.seat.slots.others() == []
    slots.give_back(A)

    assert slots.take_now(A)


async def test_slots_of_a_dead_worker_are_for_those_that_wait(commons: Commons) -> None:
    slots = slots_of(commons, 0, limit=2)
    bell = Bell(slots.seat, [slots])
    read, write = os.pipe()
    child = Child(take_two_and_sleep, commons, write)
    await asyncio.to_thread(os.read, read, 1)
    assert not slots.take_now(A)
    waiting = asyncio.ensure_future(slots.wait(A, an_exchange()))
    await eventually(lambda: commons.header[ALL_WAITING_FOR_SLOT] == 1, "waits")
    child.kill()
    commons.vacate(1)
    await asyncio.wait_for(waiting, 5)

    assert commons.header[ALL_SLOTS] == 1
    bell.close()
    os.close(read)
    os.close(write)


def take_two_and_sleep(commons: Commons, write: int) -> None:
    slots = slots_of(commons, 1, limit=2)
    assert slots.take_now(A)
    assert slots.take_now(A)
    os.write(write, b".")
    time.sleep(60)


@pytest.mark.parametrize(("limit", "each"), [(3, 0), (5, 3), (MANY, 0)])
def test_a_crowd_at_two_workers_keeps_the_limits_and_is_served(
    commons: Commons, limit: int, each: int
) -> None:
    children = [Child(crowd, commons, index, limit, each) for index in range(2)]
    most, most_here = (max(each) for each in zip(*(child.result() for child in children), strict=True))
    assert most <= limit
    assert not each or most_here <= each
    for index in range(2):
        commons.vacate(index)

    assert commons.header[ALL_SLOTS] == commons.header[ALL_WAITING_FOR_SLOT] == 0
    assert [commons.totals[row + SLOTS] for row in (A, B)] == [0, 0]


def crowd(commons: Commons, index: int, limit: int, each: int) -> tuple[int, int]:
    """Many requests at one worker; the most slots that were taken, in all and of one replica."""
    return asyncio.run(_crowd(slots_of(commons, index, limit=limit, each=each, timeout=20.0), commons))


async def _crowd(slots: CommonSlots, commons: Commons) -> tuple[int, int]:
    bell, chance = Bell(slots.seat, [slots]), random.Random(slots.seat.index)
    most = [0, 0]

    async def use() -> None:
        row = chance.choice((A, B))
        if not slots.take_now(row):
            await slots.wait(row, an_exchange())
        most[0] = max(most[0], commons.header[ALL_SLOTS])
        most[1] = max(most[1], *[commons.totals[one + SLOTS] for one in (A, B)])
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        slots.give_back(row)

    for _ in range(5):
        await asyncio.gather(*[use() for _ in range(100)])
    bell.close()
    return most[0], most[1]
