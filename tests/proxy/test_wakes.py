"""Tasks that go on with a request: the one that comes alone at once, those that come in a row one by one."""

import asyncio

import pytest

from replicarouter.proxy.wakes import Wakes


class Desk:
    """Tasks that each wait for a request, and the order in which they went on."""

    def __init__(self) -> None:
        self.wakes = Wakes(asyncio.get_running_loop())
        self.log: list[object] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def waiter(self, name: str) -> "asyncio.Future[object]":
        """What the task of this name waits with."""
        waiter: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            request = await waiter
            self.wakes.began(name)
            self.log.append(request)

        self.tasks.add(asyncio.create_task(serve()))
        await asyncio.sleep(0)
        return waiter

    async def turn(self, *names: str) -> tuple[list[object], list[object]]:
        """Requests come in one turn of the loop: who has gone on when all are read, and who after it."""
        loop = asyncio.get_running_loop()
        waiters = {name: await self.waiter(name) for name in names}
        read: asyncio.Future[list[object]] = loop.create_future()
        self.log.clear()

        def come() -> None:
            for name, waiter in waiters.items():
                self.wakes.wake(name, waiter, name)
            read.set_result([*self.log])

        loop.call_soon(come)
        at_once = await read
        await asyncio.gather(*self.tasks)
        self.tasks.clear()
        return at_once, self.log


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def test_who_comes_alone_goes_on_at_once(desk: Desk) -> None:
    for _ in range(3):
        assert await desk.turn("a") == (["a"], ["a"])
    assert desk.wakes.coming == set()


async def test_the_next_of_a_turn_go_on_in_their_order(desk: Desk) -> None:
    assert await desk.turn("a", "b", "c") == (["a"], ["a", "b", "c"])


async def test_where_rows_come_nobody_goes_on_at_once_until_one_comes_alone(desk: Desk) -> None:
    await desk.turn("a", "b")
    for _ in range(2):
        assert await desk.turn("a", "b", "c") == ([], ["a", "b", "c"])
    assert await desk.turn("a") == ([], ["a"])
    assert await desk.turn("a") == (["a"], ["a"])


async def test_it_is_known_who_is_still_to_go_on(desk: Desk) -> None:
    await desk.turn("a", "b")
    waiters = [await desk.waiter(name) for name in ("a", "b")]
    for name, waiter in zip(("a", "b"), waiters, strict=True):
        desk.wakes.wake(name, waiter, name)
    assert desk.wakes.coming == {"a", "b"}
    desk.wakes.began("b")
    assert desk.wakes.coming == {"a"}
    await asyncio.gather(*desk.tasks)
    assert desk.wakes.coming == set()


async def test_one_that_never_goes_on_keeps_nobody_from_it(desk: Desk) -> None:
    await desk.turn("a", "b")
    desk.wakes.woken("gone")
    desk.wakes.began("gone")
    assert await desk.turn("a") == (["a"], ["a"])
