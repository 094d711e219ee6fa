"""Background work: it goes on after a bad turn, says what failed, and ends when told."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import pytest

from replicarouter.tasks import TaskSet, every
from tests.fakes.virtual_time import VirtualTime, run
from tests.fakes.wire import eventually


async def test_a_failed_turn_is_logged_and_the_next_one_happens(caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []

    async def step() -> None:
        turns.append(len(turns))
        if len(turns) == 1:
            raise ValueError("a bad turn")

    tasks = TaskSet()
    tasks.start(every(0.001, step, "stepping"), "loop")
    await eventually(lambda: len(turns) >= 3, "three turns")
    await tasks.close()

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.__dict__["step"] == "stepping"
    assert record.exc_info is not None
    assert "a bad turn" in str(record.exc_info[1])


async def test_the_first_turn_comes_at_once_and_the_next_after_the_period() -> None:
    turned = asyncio.Event()
    turns = 0

    async def step() -> None:
        nonlocal turns
        turns += 1
        turned.set()

    tasks = TaskSet()
    tasks.start(every(3600.0, step, "seldom"), "loop")
    await asyncio.wait_for(turned.wait(), 5)
    await tasks.close()

    assert turns == 1


def turns_of(origins: Sequence[float], *, takes: float = 0.0, held_up: float = 0.0) -> list[list[float]]:
    """When loops of a second each take their first five turns, of `takes` seconds, in virtual time.

    The third turn of the first one holds up the event loop for `held_up` seconds.
    """
    turns: list[list[float]] = [[] for _ in origins]

    async def take_turn(number: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTime)
        turns[number].append(loop.time())
        if number == 0 and len(turns[0]) == 3:
            loop.now += held_up
        await asyncio.sleep(takes)

    async def work() -> None:
        tasks = TaskSet()
        for number, origin in enumerate(origins):
            tasks.start(every(1.0, partial(take_turn, number), "stepping", origin=origin), f"loop {number}")
        await asyncio.sleep(5.9)
        await tasks.close()

    run(work())
    return turns


def test_turns_come_at_their_places_in_the_period() -> None:
    first, second, third = turns_of((0.0, 0.25, 0.75))

    assert first == pytest.approx([0, 1, 2, 3, 4, 5])
    assert second == pytest.approx([0, 1.25, 2.25, 3.25, 4.25, 5.25])
    assert third == pytest.approx([0, 0.75, 1.75, 2.75, 3.75, 4.75, 5.75])


def test_turns_return_to_their_places_after_something_has_held_them_up() -> None:
    first, second = turns_of((0.0, 0.25), held_up=1.1)

    assert first == pytest.approx([0, 1, 2, 4, 5])
    assert second == pytest.approx([0, 1.25, 3.1, 4.25, 5.25])


@pytest.mark.parametrize(
    ("takes", "expected"), [(0.4, [0, 1, 2, 3, 4, 5]), (0.6, [0, 2, 4]), (1.0, [0, 2, 4])]
)
def test_a_turn_that_takes_long_lets_others_out(takes: float, expected: list[float]) -> None:
    (turns,) = turns_of((0.0,), takes=takes)

    assert turns == pytest.approx(expected)


async def test_closing_cancels_what_runs_and_waits_for_its_end() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    tasks = TaskSet()
    task = tasks.start(work(), "work")
    await begun.wait()
    await tasks.close()

    assert ended == ["cleaned up"]
    assert task.cancelled()


async def test_an_exception_that_escapes_is_logged_with_the_task_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        raise ValueError("no more")

    tasks = TaskSet()
    task = tasks.start(work(), "fragile")
    await eventually(task.done, "the task ends")
    await eventually(lambda: caplog.records, "it is logged")

    (record,) = caplog.records
    assert record.__dict__["task"] == "fragile"
    assert record.exc_info is not None
    await tasks.close()


async def test_neither_an_end_nor_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def short() -> None:
        await asyncio.sleep(0)

    tasks = TaskSet()
    ended = tasks.start(short(), "short")
    cancelled = tasks.start(asyncio.sleep(3600, None), "long")
    await eventually(ended.done, "the short one ends")
    cancelled.cancel()
    await eventually(cancelled.done, "the long one is cancelled")
    await tasks.close()

    assert caplog.records == []
