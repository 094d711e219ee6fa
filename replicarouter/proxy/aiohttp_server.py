"""aiohttp's server, as far as the router uses it beyond its documented API: what the connections of clients
have in common. `tests/proxy/test_aiohttp_internals.py` fails when a release changes any of it; the version
range in pyproject.toml says which releases were seen.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from replicarouter.errors import RouterError
from replicarouter.proxy.aiohttp_internals import ClientConnection
from replicarouter.proxy.inbound import InboundRequest, KnownHeads
from replicarouter.proxy.lookout import Lookout
from replicarouter.proxy.outbox import Outbox
from replicarouter.proxy.wakes import Wakes
from replicarouter.proxy.write_watch import unwritten

Handler = Callable[[InboundRequest], Awaitable[bool]]
"""Answers a request; whether the connection may serve another one."""


class FrontServer(Server):
    """aiohttp's server, making connections of our kind and cancelling handlers whose client left."""

    def __init__(
        self,
        handler: Handler,
        refuse: Callable[[ClientConnection, RouterError], None],
        *,
        head_timeout: float,
        write_timeout: float,
        options: dict[str, Any],
    ) -> None:
        super().__init__(_unused, handler_cancellation=True)
        self._options = options
        self.handle = handler
        self.refuse = refuse
        self.known_heads = KnownHeads()
        self.wakes = Wakes(self._loop)
        self.lookout = Lookout(self._loop.time)
        self.outbox = Outbox(self._loop, self.wakes.coming)
        self.head_timeout = head_timeout
        self.write_timeout = write_timeout
        self.on_connection: Callable[[], None] | None = None

    @property
    def unwritten(self) -> int:
        """Bytes of answers that clients have yet to take."""
        transports = [connection.transport for connection in self.connections]
        return sum(unwritten(one) for one in transports if one is not None)

    @property
    def in_use(self) -> int:
        """Connections of clients."""
        return len(self._connections)

    def close_idle(self) -> None:
        """Close the connections of clients that have been answered and ask for nothing."""
        for connection in self.connections:
            if isinstance(connection, ClientConnection) and connection.idle:
                connection.force_close()

    def __call__(self) -> ClientConnection:
        """A protocol for a new client connection."""
        return ClientConnection(self, self._loop, self._options)


async def _unused(request: BaseRequest) -> StreamResponse:
    """aiohttp's own request loop, which would call this, is replaced by `ClientConnection.start`."""
    raise NotImplementedError(request)
