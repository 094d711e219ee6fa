"""Journeys run on the event loop that `serve` uses; some run `serve` itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio
import uvloop

from tests.fakes.replica import FakeReplica
from tests.fakes.served import Serve, Served


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start the real command in front of replicas; none of its processes is left afterwards."""
    served: list[Served] = []
    fakes: list[FakeReplica] = []

    async def start(
        *replicas: FakeReplica,
        flags: tuple[str, ...] = (),
        up: bool = True,
        descriptors: int | None = None,
    ) -> Served:
        for replica in replicas:
            fakes.append(replica)
            await replica.listen()
        served.append(Served(tmp_path, replicas, flags, descriptors))
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
