"""The data plane runs on the loop that `serve` uses; what leans on transports must not need it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import uvloop

from replicarouter.errors import RouterError
from replicarouter.protocol.answer import LocalAnswer
from replicarouter.proxy.aiohttp_internals import ClientConnection, InboundRequest
from replicarouter.proxy.aiohttp_server import FrontServer, Handler
from replicarouter.proxy.answers import write_answer
from tests.fakes.client import HOST, Client

ON_BOTH_LOOPS = {
    *("test_aiohttp_connector", "test_aiohttp_internals", "test_aiohttp_payload", "test_arriving"),
    *("test_hung_up", "test_outbox", "test_relay", "test_straight", "test_tunnel", "test_upstream"),
    *("test_asyncio_internals", "test_wakes"),
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.stem in ON_BOTH_LOOPS:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@dataclass(slots=True, eq=False)
class Front:
    """A front server on a real port: what its handler saw, what it refused, who is connected."""

    server: FrontServer
    port: int
    seen: list[InboundRequest] = field(default_factory=list)
    refused: list[RouterError] = field(default_factory=list)
    cancelled: int = 0
    clients: list[Client] = field(default_factory=list)

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        self.clients.append(await Client.connect(self.port, receive_buffer=receive_buffer))
        return self.clients[-1]

    @property
    def connections(self) -> list[ClientConnection]:
        return [one for one in self.server.connections if isinstance(one, ClientConnection)]


StartFront = Callable[..., Awaitable[Front]]


def answer(request: InboundRequest, body: bytes = b"ok", *, close: bool = False) -> bool:
    """Write a small answer; what the handler returns for it."""
    write_answer(request.client, LocalAnswer(200, body, "text/plain"), close=close, bare=False)
    return not close


async def hang(_: InboundRequest) -> bool:
    """A handler that never answers."""
    await asyncio.Event().wait()
    return False


@pytest_asyncio.fixture
async def start_front() -> AsyncIterator[StartFront]:
    """Start a front server whose handler is given; without one, every request gets a small answer."""
    started: list[tuple[Front, asyncio.Server]] = []

    async def start(
        handler: Handler | None = None,
        *,
        head_timeout: float = 5.0,
        write_timeout: float = 5.0,
        **options: object,
    ) -> Front:
        async def handle(request: InboundRequest) -> bool:
            front.seen.append(request)
            try:
                return answer(request) if handler is None else await handler(request)
            except asyncio.CancelledError:
                front.cancelled += 1
                raise

        def refuse(client: ClientConnection, error: RouterError) -> None:
            front.refused.append(error)
            write_answer(client, LocalAnswer(error.status, b""), close=True, bare=False)

        server = FrontServer(
            handle, refuse, head_timeout=head_timeout, write_timeout=write_timeout, options=dict(options)
        )
        listener = await asyncio.get_running_loop().create_server(server, HOST, 0)
        front = Front(server, listener.sockets[0].getsockname()[1])
        started.append((front, listener))
        return front

    yield start
    for front, listener in started:
        for client in front.clients:
            await client.closed()
        listener.close()
        await front.server.shutdown(1.0)
