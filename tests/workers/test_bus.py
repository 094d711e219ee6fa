"""Messages between two processes, here over both ends of one pair of sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from replicarouter.errors import Overloaded, UnknownRequest
from replicarouter.workers.bus import Bus, packed
from tests.fakes.wire import eventually


@dataclass
class Side:
    """One end, and what it has heard."""

    heard: list[tuple[Any, ...]] = field(default_factory=list)
    lost: bool = False
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.bus = Bus({"told": self._told}, {"double": self._double, "wait": self._wait}, self._lost)

    def _told(self, *facts: Any) -> None:
        self.heard.append(facts)

    def _lost(self) -> None:
        self.lost = True

    async def _double(self, number: int) -> int:
        if number < 0:
            raise UnknownRequest("There is none.")
        return 2 * number

    async def _wait(self) -> None:
        await self.held.wait()


@dataclass
class Pair:
    one: Side
    other: Side


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[Pair]:
    one, other = Side(), Side()
    ends = socket.socketpair()
    for side, end in zip((one, other), ends, strict=True):
        end.setblocking(False)
        await side.bus.connect(end)
    yield Pair(one, other)
    one.bus.close()
    other.bus.close()
    await eventually(lambda: one.lost and other.lost, "both sides are closed")


async def test_messages_come_whole_and_in_order(pair: Pair) -> None:
    large = b"x" * 3_000_000
    for number in range(50):
        pair.one.bus.send("told", number)
    pair.one.bus.send("told", large)
    pair.one.bus.send("told", "last")
    await eventually(lambda: len(pair.other.heard) == 52, "all have come")
    assert pair.other.heard == [*((number,) for number in range(50)), (large,), ("last",)]


async def test_what_was_packed_once_can_go_to_many(pair: Pair) -> None:
    message = packed("told", {"a": 1}, None)
    pair.one.bus.pass_on(message)
    pair.other.bus.pass_on(message)
    await eventually(lambda: pair.one.heard and pair.other.heard, "both have heard")
    assert pair.one.heard == pair.other.heard == [({"a": 1}, None)]


async def test_questions_are_answered_in_any_order(pair: Pair) -> None:
    slow = asyncio.ensure_future(pair.one.bus.ask("wait"))
    assert await asyncio.gather(*(pair.one.bus.ask("double", number) for number in range(5))) == [
        *(0, 2, 4, 6, 8)
    ]
    assert not slow.done()
    pair.other.held.set()
    assert await slow is None


async def test_both_sides_may_ask(pair: Pair) -> None:
    assert await pair.other.bus.ask("double", 21) == 42


async def test_an_error_for_people_is_raised_where_the_question_was(pair: Pair) -> None:
    with pytest.raises(UnknownRequest, match="There is none"):
        await pair.one.bus.ask("double", -1)


async def test_who_asks_hears_of_the_end(pair: Pair) -> None:
    question = asyncio.ensure_future(pair.one.bus.ask("wait"))
    await eventually(lambda: pair.other.bus.open, "it is open")
    pair.other.bus.close()
    with pytest.raises(Overloaded):
        await question
    await eventually(lambda: pair.one.lost, "the other side is told")


async def test_nobody_waits_for_one_that_has_gone(pair: Pair) -> None:
    pair.other.bus.close()
    await eventually(lambda: pair.one.lost, "it is closed")
    assert not pair.one.bus.open
    pair.one.bus.send("told", 1)
    with pytest.raises(Overloaded):
        await pair.one.bus.ask("double", 1)


async def test_a_side_that_has_not_connected_is_not_open() -> None:
    side = Side()
    side.bus.send("told", 1)
    with pytest.raises(Overloaded):
        await side.bus.ask("double", 1)
