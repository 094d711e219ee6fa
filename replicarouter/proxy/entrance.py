"""The main port. While this process has no descriptors left, new clients wait in the operating system's queue
instead of being cut off."""

import asyncio
import logging
import socket
import ssl

from replicarouter.errors import CannotListen
from replicarouter.proxy.aiohttp_server import FrontServer
from replicarouter.proxy.descriptors import Descriptors
from replicarouter.tasks import TaskSet

log = logging.getLogger(__name__)

BACKLOG = 4096
LOOK = 0.05
"""Seconds between two looks whether there is room again."""

WARN_EVERY = 60.0
"""Seconds between two warnings."""


class Entrance:
    """Listens for clients of `front`, and stops while there are no descriptors left for them. `shared`: other
    processes listen on the same port, and the operating system deals the clients out."""

    def __init__(
        self,
        front: FrontServer,
        descriptors: Descriptors,
        *,
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._front = front
        self._descriptors = descriptors
        self._tls = tls
        self._handshake = handshake
        self._loop = asyncio.get_running_loop()
        self._ports: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._tasks = TaskSet()
        self._warned_at = -WARN_EVERY
        front.on_connection = self._look
        descriptors.count(lambda: front.in_use)

    @property
    def port(self) -> int:
        """The port clients connect to, 0 before it is open."""
        return int(self._ports[0].getsockname()[1]) if self._ports else 0

    async def open(self, host: str, port: int) -> None:
        """Listen on every address of `host`. Raises `CannotListen`, as when the port is taken."""
        try:
            server = await self._loop.create_server(
                self._front,
                host,
                port,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake,
                reuse_port=self._shared,
            )
        except OSError as error:
            raise CannotListen(host, port, error) from error
        # These stay open while nobody accepts, so that the queue of clients stays.
        self._ports = [one.dup() for one in server.sockets]
        self._servers = [server]

    async def close(self) -> None:
        """Listen no longer."""
        self._front.on_connection = None
        await self._tasks.close()
        for server in self._servers:
            server.close()
        for port in self._ports:
            port.close()

    def _look(self) -> None:
        """A client has come: was it the last one for whom there is room?"""
        if not self._servers or self._descriptors.left > 0:
            return
        for server in self._servers:
            server.close()
        self._servers = []
        self._front.close_idle()
        now = self._loop.time()
        if now >= self._warned_at + WARN_EVERY:
            self._warned_at = now
            log.warning("out of descriptors, clients wait", extra={"connections": self._descriptors.most})
        self._tasks.start(self._wait_for_room(), "entrance")

    async def _wait_for_room(self) -> None:
        # Half of what is kept for refusals: enough to tell some clients before the next pause.
        while self._descriptors.left <= self._descriptors.kept // 2 or not await self._reopen():
            await asyncio.sleep(LOOK)

    async def _reopen(self) -> bool:
        """Accept clients again; False when there is no descriptor left even for that, whoever has them."""
        opened: list[asyncio.Server] = []
        try:
            for port in self._ports:
                opened += [await self._listen_again(port.dup())]
        except OSError:
            for server in opened:
                server.close()
            return False
        self._servers = opened
        return True

    async def _listen_again(self, port: socket.socket) -> asyncio.Server:
        return await self._loop.create_server(
            self._front,
            sock=port,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=self._handshake,
        )
