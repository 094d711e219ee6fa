"""Connector slots: at most so many, first come first served, and none ever lost."""

import asyncio
from collections.abc import Callable

import pytest

from replicarouter.errors import QueueTimeout
from replicarouter.fleet.ledger import Ledger
from replicarouter.proxy.slots import Slots
from tests.fakes.wire import eventually
from tests.scene import HandClock, an_exchange

A, B = 0, 4


class Line:
    """Slots, and those who wait for one, by number."""

    def __init__(self, *, limit: int = 0, each: int = 0, timeout: float = 0.0) -> None:
        self.ledger = Ledger()
        self.clock = HandClock()
        self.slots = Slots(
            limit=limit, limit_per_replica=each, timeout=timeout, ledger=self.ledger, clock=self.clock
        )
        self.waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, number: int, row: int = A) -> None:
        before = self.ledger.waiting_for_slot
        self.waiting[number] = asyncio.ensure_future(self.slots.wait(row, an_exchange()))
        await eventually(lambda: self.ledger.waiting_for_slot > before, "it waits")

    async def served(self) -> list[int]:
        for _ in range(3):
            await asyncio.sleep(0)
        return [number for number, one in self.waiting.items() if one.done() and not one.cancelled()]

    def free(self, row: int = A) -> int:
        """How many slots can be taken now for this row; they are given back."""
        count = 0
        while count < 100 and self.slots.take_now(row):
            count += 1
        for _ in range(count):
            self.slots.give_back(row)
        return count


@pytest.fixture
def line() -> Callable[..., Line]:
    return Line


def test_without_limits_there_is_always_one() -> None:
    assert Line().free() == 100


@pytest.mark.parametrize(("limit", "each", "free"), [(3, 0, 3), (0, 3, 3), (5, 3, 3), (3, 5, 3)])
def test_the_smaller_limit_holds(limit: int, each: int, free: int) -> None:
    assert Line(limit=limit, each=each).free() == free


def test_a_limit_in_all_is_shared() -> None:
    line = Line(limit=2)
    assert [line.slots.take_now(row) for row in (A, B, A)] == [True, True, False]


def test_a_limit_for_each_is_not() -> None:
    line = Line(each=1)
    assert [line.slots.take_now(row) for row in (A, A, B, B)] == [True, False, True, False]


async def test_who_waits_is_counted_and_held() -> None:
    line = Line(limit=1)
    line.slots.take_now(A)
    await line.wait(1)
    line.clock.move(2)
    assert line.ledger.waiting_for_slot == 1
    assert line.ledger.longest_hold(line.clock()) == 2

    line.slots.give_back(A)
    assert await line.served() == [1]
    assert line.ledger.waiting_for_slot == 0
    assert line.ledger.longest_hold(line.clock()) == 0


async def test_slots_go_to_the_first_in_line() -> None:
    line = Line(limit=2)
    for row in (A, B):
        line.slots.take_now(row)
    for number in range(5):
        await line.wait(number, (A, B)[number % 2])

    for number in range(5):
        line.slots.give_back((A, B)[number % 2])
        assert await line.served() == list(range(number + 1))
    assert line.free() == 0


async def test_a_newcomer_does_not_overtake() -> None:
    line = Line(limit=1)
    line.slots.take_now(A)
    await line.wait(1)
    line.slots.give_back(A)

    assert not line.slots.take_now(A)
    assert await line.served() == [1]


async def test_who_cannot_use_a_slot_does_not_hold_up_who_can() -> None:
    line = Line(limit=3, each=1)
    for row in (A, B):
        line.slots.take_now(row)
    await line.wait(1, A)
    await line.wait(2, B)
    line.slots.give_back(B)

    assert await line.served() == [2]
    line.slots.give_back(A)
    assert await line.served() == [1, 2]


async def test_a_wait_that_is_too_long_ends_with_an_error() -> None:
    line = Line(limit=1, timeout=0.01)
    line.slots.take_now(A)
    with pytest.raises(QueueTimeout, match=r"connector\.limit"):
        await line.slots.wait(A, an_exchange())

    assert line.ledger.waiting_for_slot == 0
    assert line.ledger.longest_hold(2000.0) == 0
    line.slots.give_back(A)
    assert line.free() == 1


async def test_who_leaves_the_line_leaves_no_trace() -> None:
    line = Line(limit=1)
    line.slots.take_now(A)
    for number in range(3):
        await line.wait(number)
    line.waiting[1].cancel()
    await asyncio.wait([line.waiting[1]])
    assert line.ledger.waiting_for_slot == 2

    line.slots.give_back(A)
    assert await line.served() == [0]
    line.slots.give_back(A)
    assert await line.served() == [0, 2]
    line.slots.give_back(A)
    assert line.free() == 1


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("leaves_first", [True, False])
@pytest.mark.parametrize("others", [0, 1, 2])
async def test_no_slot_is_lost_whenever_somebody_leaves(turns: int, leaves_first: bool, others: int) -> None:
    line = Line(limit=1)
    line.slots.take_now(A)
    for number in range(1 + others):
        await line.wait(number)

    steps: list[Callable[[], object]] = [line.waiting[0].cancel, lambda: line.slots.give_back(A)]
    for step in steps if leaves_first else reversed(steps):
        step()
        for _ in range(turns):
            await asyncio.sleep(0)
    for _ in range(others):
        if 0 in await line.served():
            line.waiting.pop(0)
            line.slots.give_back(A)
        (holder, *_) = await line.served()
        line.waiting.pop(holder)
        line.slots.give_back(A)
    if await line.served():
        line.slots.give_back(A)

    assert line.ledger.waiting_for_slot == 0
    assert line.free() == 1
