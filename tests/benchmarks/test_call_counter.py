"""What is counted on an event loop, what is left out, and whose it is."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import uvloop

from benchmarks.call_counter import C_CALLS, CALLS, INSTRUCTIONS, WITHIN, Counter, Row, Sample


@dataclass(slots=True)
class Made:
    value: int


def leaf(text: str) -> int:
    return len(text)


def turn() -> None:
    for word in ("one", "two"):
        leaf(word)
    Made(3)


def background() -> None:
    leaf("not ours")


def failing() -> None:
    try:
        leaf(None)  # type: ignore[arg-type]
    except TypeError:
        return


def counted(*turns: Callable[[], None]) -> tuple[Sample, Counter]:
    """What happens in these turns of a loop, in a thread of its own: others may trace this one."""
    counter = Counter([background.__code__])

    async def main() -> Sample:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Sample] = loop.create_future()

        def finish() -> None:
            counter.stop()
            done.set_result(counter.cut())

        loop.call_soon(lambda: counter.start(sys._getframe(1)))
        # What is traced for the first time may be traced in part.
        for one in (*turns, counter.cut, *turns, finish):
            loop.call_soon(one)
        return await done

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(uvloop.run, main()).result(), counter


def row(sample: Sample, function: Callable[..., object]) -> Row:
    return sample.rows[function.__code__]


def test_calls_instructions_and_c_calls_are_counted_for_each_function() -> None:
    sample, _ = counted(turn)
    assert row(sample, leaf)[CALLS] == 2
    assert row(sample, leaf)[C_CALLS] == 2
    assert row(sample, leaf)[INSTRUCTIONS] % 2 == 0
    assert row(sample, leaf)[INSTRUCTIONS] > 6
    assert sample.c_calls[leaf.__code__, "builtins.len"] == 2
    assert sample.turns[turn.__code__] == 1


def test_what_a_function_calls_is_within_it() -> None:
    sample, _ = counted(turn)
    inner = [one[INSTRUCTIONS] for code, one in sample.rows.items() if code.co_name in ("leaf", "__init__")]
    assert row(sample, turn)[WITHIN] == row(sample, turn)[INSTRUCTIONS] + sum(inner)
    assert len(inner) == 2


def test_the_background_is_left_out() -> None:
    sample, _ = counted(background, turn, background)
    alone, _ = counted(turn)
    assert background.__code__ not in sample.rows
    assert row(sample, leaf) == row(alone, leaf)


def test_a_function_left_by_an_exception_ends_there() -> None:
    sample, _ = counted(failing, turn)
    alone, _ = counted(turn)
    assert row(sample, turn) == row(alone, turn)
    assert row(sample, failing)[WITHIN] > row(sample, failing)[INSTRUCTIONS]


def test_a_function_made_of_text_is_named_after_its_class() -> None:
    sample, counter = counted(turn)
    [made] = [code for code in sample.rows if code.co_name == "__init__"]
    assert counter.made[made] == f"{__name__.replace('.', '/')}.py:Made.__init__"


@pytest.mark.parametrize("_again", range(3))
def test_the_same_work_gives_the_same_count(_again: int) -> None:
    first, _ = counted(turn, failing)
    second, _ = counted(turn, failing)
    assert (first.rows, first.turns, first.c_calls) == (second.rows, second.turns, second.c_calls)
