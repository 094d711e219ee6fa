"""Simulated engines that are gone after the test, on both event loops that the product meets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest_asyncio
import uvloop

from replicarouter.simulator import EngineOptions, SimulatedEngine
from tests.fakes.client import Client

Start = Callable[..., Coroutine[Any, Any, SimulatedEngine]]
Connect = Callable[..., Coroutine[Any, Any, Client]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Start engines with these options; without a profile they take no time."""
    engines: list[SimulatedEngine] = []

    async def one(**options: Any) -> SimulatedEngine:
        engine = SimulatedEngine(EngineOptions(**{"profile": "instant", **options}))
        await engine.start()
        engines.append(engine)
        return engine

    yield one
    for engine in engines:
        await engine.stop()


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect raw clients; all of them are gone afterwards."""
    clients: list[Client] = []

    async def one(engine: SimulatedEngine, *, receive_buffer: int | None = None) -> Client:
        clients.append(await Client.connect(engine.port, receive_buffer=receive_buffer))
        return clients[-1]

    yield one
    for client in clients:
        await client.closed()
