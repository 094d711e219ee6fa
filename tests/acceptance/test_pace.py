"""Several things at once, and waiting."""

import asyncio
import time

import aiohttp

from replicarouter.acceptance.door import Door
from replicarouter.acceptance.errors import CheckError, NoAnswer
from replicarouter.acceptance.pace import at_each, together, until


async def test_one_that_fails_does_not_stop_the_others() -> None:
    async def step(number: int) -> int:
        if number == 2:
            raise NoAnswer("two is gone")
        return number

    one, two, three = await together(step(number) for number in (1, 2, 3))
    assert (one, three) == (1, 3)
    assert isinstance(two, CheckError)


async def test_what_came_of_each_door() -> None:
    async with aiohttp.ClientSession() as session:
        doors = [Door(name, "http://127.0.0.1:1", session, time.monotonic) for name in ("a", "b")]

        async def step(door: Door) -> str:
            if door.name == "b":
                raise NoAnswer("b is gone")
            return "fine"

        asked = await at_each(doors, step)
    assert asked.good == ((doors[0], "fine"),)
    assert asked.problems == ("b is gone",)


async def test_steps_run_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)
    async with asyncio.timeout(5):
        await together(barrier.wait() for _ in range(3))


async def test_waiting_tells_how_long_it_took_or_gives_up() -> None:
    looks = iter((False, False, True))

    async def condition() -> bool:
        return next(looks)

    took = await until(condition, time.monotonic, within=5)
    assert took is not None
    assert took > 0

    async def never() -> bool:
        return False

    assert await until(never, time.monotonic, within=0.05) is None
