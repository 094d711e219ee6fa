"""The port of an engine. It can be bound and refuse all the same: its number is kept for later."""

import asyncio
import socket
from collections.abc import Callable

from replicarouter.tasks import TaskSet

_BACKLOG = 2048


class Entrance:
    """Listens on one port, at every address its host has, unless it is shut. Reasons to be shut add up."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._addresses: list[tuple[socket.AddressFamily, tuple[str, int]]] = []
        self._bound: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._reasons: set[str] = set()
        self._opening = False
        self._closed = False
        self._tasks = TaskSet()
        self._reopening: asyncio.Task[None] | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the port (0: any) and refuse connections still; OSError names it if it is taken."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            self._addresses.append((family, (str(address[0]), port)))
            try:
                self._bound.append(_bind(family, (str(address[0]), port)))
            except OSError as error:
                self._release()
                raise OSError(error.errno, f"address {host}:{port}: {_said(error)}") from None
            port = self._bound[0].getsockname()[1]
        self._addresses = [(family, (address[0], port)) for family, address in self._addresses]
        return port

    async def listen(self) -> None:
        """Accept connections, if there is no reason against it. OSError when the port is another's."""
        if self._reasons or self._closed or self._opening:
            return
        loop = asyncio.get_running_loop()
        self._opening = True
        try:
            while self._bound:
                one = self._bound.pop()
                one.listen(_BACKLOG)  # here, since uvloop cannot be rid of a server that failed to
                self._servers.append(await loop.create_server(self._factory, sock=one, backlog=_BACKLOG))
        except OSError as error:
            one.close()
            host, port = self._addresses[0][1]
            raise OSError(error.errno, f"address {host}:{port}: {_said(error)}") from None
        finally:
            self._opening = False
        if self._reasons or self._closed:
            self._stop_listening()

    def shut(self, reason: str) -> None:
        """Refuse connections from now on; those that are open stay."""
        self._reasons.add(reason)
        self._stop_listening()

    def reopen(self, reason: str) -> None:
        """Take back a reason; without any other left, connections are accepted soon."""
        if reason in self._reasons:
            self._reasons.discard(reason)
            self._reopening = self._tasks.start(self.listen(), "listen again")

    async def close(self) -> None:
        """Give the port up; connections that are open stay."""
        self._closed = True
        if self._reopening:
            await asyncio.wait({self._reopening})  # cancelled, it would leave a socket behind
        self._stop_listening()
        self._release()

    def _stop_listening(self) -> None:
        if self._opening:
            return  # `listen` looks again when it has done
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        if servers and not self._closed:
            self._bound = [_bind(family, address) for family, address in self._addresses]

    def _release(self) -> None:
        for one in self._bound:
            one.close()
        self._bound = []


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _said(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
