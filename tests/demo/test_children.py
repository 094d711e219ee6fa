"""Child processes: real ones, of this program."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from replicarouter.demo.children import Child
from replicarouter.demo.options import DemoFailed
from tests.fakes.wire import eventually

Start = Callable[..., Child]
ENGINE = ("engine", "--port", "0", "--profile", "instant")


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Child] = []

    def one(*arguments: str) -> Child:
        started.append(Child("child", arguments))
        return started[-1]

    yield one
    for child in started:
        await child.stop()


def own_children() -> set[int]:
    """The processes that this one has started and that still run."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


async def serving(child: Child) -> bool:
    async def address() -> bool | None:
        return True if "http://" in child.output() else None

    return await child.until(address)


async def end_of(child: Child) -> str:
    """Wait until the child has ended; what is said about it."""

    def words() -> str:
        try:
            child.check()
        except DemoFailed as failure:
            return str(failure)
        return ""

    return await eventually(words, "the child has ended", deadline=20.0)


async def test_child_is_ended_by_stop() -> None:
    before = own_children()
    child = Child("engine", ENGINE)
    try:
        assert await serving(child)
        child.check()
        assert len(own_children() - before) == 1
    finally:
        await child.stop()
    assert own_children() == before


async def test_child_that_cannot_start_says_why(start: Start) -> None:
    child = start("engine", "--port", "70000")
    with pytest.raises(DemoFailed, match=r"the child ended \(exit status 2\): .*port") as failure:
        await serving(child)
    assert "replicarouter: " not in str(failure.value)


async def test_child_that_was_killed_is_noticed(start: Start) -> None:
    before = own_children()
    child = start(*ENGINE)
    assert await serving(child)
    (pid,) = own_children() - before
    os.kill(pid, signal.SIGKILL)

    assert await end_of(child) == "the child ended (SIGKILL): it said nothing"


async def test_child_outlives_an_interrupt_of_the_terminal(start: Start) -> None:
    before = own_children()
    child = start(*ENGINE)
    assert await serving(child)
    (pid,) = own_children() - before
    os.kill(pid, signal.SIGINT)
    # the signal that ends it comes after the one that it must not have seen
    os.kill(pid, signal.SIGKILL)

    assert "SIGKILL" in await end_of(child)


async def test_child_does_not_see_the_routers_variables(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICAROUTER_PORT", "nonsense")
    child = start("config", "show", "--replica", "http://127.0.0.1:1")

    assert "exit status 0" in await end_of(child)


async def test_child_that_does_not_serve_in_time_fails(start: Start) -> None:
    child = start(*ENGINE)

    async def never() -> None:
        return None

    with pytest.raises(DemoFailed, match=r"did not serve within 0\.1 s"):
        await child.until(never, deadline=0.1)
