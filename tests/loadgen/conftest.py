"""Users of scripted replicas, on both event loops that the product meets."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest_asyncio
import uvloop

from replicarouter.loadgen.client import Client
from replicarouter.loadgen.report import Tally
from tests.fakes.client import HOST
from tests.fakes.replica import FakeReplica, Script

Serve = Callable[[Script], Coroutine[None, None, FakeReplica]]
MakeUser = Callable[[int], Client]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start replicas that follow a script."""
    replicas: list[FakeReplica] = []

    async def one(script: Script) -> FakeReplica:
        replica = FakeReplica(script)
        replicas.append(replica)
        await replica.listen()
        return replica

    yield one
    for replica in replicas:
        await replica.stop()


@pytest_asyncio.fixture
async def tally() -> Tally:
    return Tally()


@pytest_asyncio.fixture
async def user(tally: Tally) -> AsyncIterator[MakeUser]:
    """Make users of the server at a port; their connections are closed afterwards."""
    users: list[Client] = []

    def make(port: int) -> Client:
        users.append(Client(HOST, port, tally=tally, clock=time.perf_counter))
        return users[-1]

    yield make
    for one in users:
        one.close()
