"""Journeys run on the event loop that `serve` uses; some run `serve` itself."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest_asyncio
import uvloop

from tests.fakes.replica import FakeReplica
from tests.fakes.running import Doors, free_port
from tests.fakes.wire import eventually

STARTS = 20.0
"""Seconds for an interpreter to start on a busy machine."""


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


class Served(Doors):
    """`replicarouter serve` as a process of its own."""

    def __init__(self, folder: Path, replicas: tuple[FakeReplica, ...], flags: tuple[str, ...]) -> None:
        super().__init__(free_port(), free_port())
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        fleet = [part for replica in replicas for part in ("--replica", replica.settings["url"])]
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "replicarouter", "serve", *ports, *fleet, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    async def up(self) -> None:
        """Wait until it answers on both ports."""

        async def answers() -> bool:
            assert self.process.poll() is None, self.output
            try:
                return (await self.admin("/health")).status == (await self.get("/health")).status == 200
            except ConnectionRefusedError:
                return False

        await eventually(answers, "the router answers", deadline=STARTS)

    async def exit_status(self) -> int:
        """Wait for it to end."""
        await eventually(lambda: self.process.poll() is not None, "the router ends", deadline=STARTS)
        return self.process.wait()


Serve = Callable[..., Awaitable[Served]]


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start the real command in front of replicas; none of its processes is left afterwards."""
    served: list[Served] = []
    fakes: list[FakeReplica] = []

    async def start(*replicas: FakeReplica, flags: tuple[str, ...] = (), up: bool = True) -> Served:
        for replica in replicas:
            fakes.append(replica)
            await replica.listen()
        served.append(Served(tmp_path, replicas, flags))
        if up:
            await served[-1].up()
        return served[-1]

    yield start
    for one in served:
        await one.leave()
        one.process.kill()
        one.process.wait()
    for replica in fakes:
        await replica.stop()
    assert [fault for replica in fakes for fault in replica.faults] == []
