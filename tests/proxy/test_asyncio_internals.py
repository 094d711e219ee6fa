"""What the router takes from asyncio beyond its documented API."""

import asyncio
from contextvars import ContextVar

import pytest

from replicarouter.proxy.asyncio_internals import go_on


async def test_a_task_goes_on_in_its_own_context() -> None:
    name: ContextVar[str] = ContextVar("name", default="none")
    waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    seen: list[tuple[str, str, bool]] = []

    async def serve() -> None:
        name.set("mine")
        result = await waiter
        seen.append((result, name.get(), asyncio.current_task() is task))

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    done = asyncio.Event()

    def come() -> None:
        go_on(waiter, "request")
        seen.append(("outside", name.get(), False))
        done.set()

    asyncio.get_running_loop().call_soon(come)
    await done.wait()
    assert seen == [("request", "mine", True), ("outside", "none", False)]
    await task


async def test_what_a_task_raises_stays_with_it() -> None:
    waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        raise ValueError(await waiter)

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(go_on, waiter, "bad")
    with pytest.raises(ValueError, match="bad"):
        await task


@pytest.mark.parametrize("tasks", [0, 2])
async def test_where_not_just_one_task_waits_none_is_run_at_once(tasks: int) -> None:
    waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve() -> str:
        return await asyncio.shield(waiter)

    waiting = [asyncio.create_task(serve()) for _ in range(tasks)]
    await asyncio.sleep(0)
    go_on(waiter, "request")
    assert waiter.done()
    assert await asyncio.gather(*waiting) == ["request"] * tasks


async def test_a_task_that_has_gone_on_can_be_cancelled_as_before() -> None:
    waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    forever = asyncio.Event()

    async def serve() -> None:
        await waiter
        await forever.wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(go_on, waiter, "request")
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_within_a_task_no_other_is_run() -> None:
    waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve() -> str:
        return await waiter

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    go_on(waiter, "request")
    assert not task.done()
    assert await task == "request"
