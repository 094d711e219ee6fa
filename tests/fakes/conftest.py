"""The fakes must behave the same on both event loops that tests use."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest_asyncio
import uvloop

from tests.fakes.client import Client, Connect


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect raw clients; all of them are gone afterwards."""
    clients: list[Client] = []

    async def one(port: int, *, receive_buffer: int | None = None) -> Client:
        clients.append(await Client.connect(port, receive_buffer=receive_buffer))
        return clients[-1]

    yield one
    for client in clients:
        await client.closed()
