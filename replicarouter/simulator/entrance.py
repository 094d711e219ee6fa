"""The port of an engine. It can be bound and refuse all the same: its number is kept for later."""

import asyncio
import socket
from collections.abc import Callable

from replicarouter.tasks import TaskSet

_BACKLOG = 2048


class Entrance:
    """Listens on one port, at every address its host has, unless it is shut. Reasons to be shut add up.

    It accepts by itself: asyncio's servers lose connections that come while they are being closed.
    """

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._addresses: list[tuple[socket.AddressFamily, tuple[str, int]]] = []
        self._sockets: list[socket.socket] = []
        self._reasons: set[str] = set()
        self._listening = False
        self._tasks = TaskSet()
        self._entering: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop

    async def bind(self, host: str, port: int) -> int:
        """Take the port (0: any) and refuse connections still; OSError names it if it is taken."""
        self._loop = asyncio.get_running_loop()
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            self._addresses.append((family, (str(address[0]), port)))
            self._try(lambda: self._sockets.append(_bound(*self._addresses[-1])))
            port = self._sockets[0].getsockname()[1]
        self._addresses = [(family, (address[0], port)) for family, address in self._addresses]
        return port

    def listen(self) -> None:
        """Accept connections, if there is no reason against it. OSError when the port is another's."""
        if self._reasons or self._listening:
            return
        for one in self._sockets:
            self._try(lambda one=one: one.listen(_BACKLOG))  # type: ignore[misc]
            self._loop.add_reader(one, self._accept, one)
        self._listening = True

    def shut(self, reason: str) -> None:
        """Refuse connections from now on; those that are open stay."""
        self._reasons.add(reason)
        if self._listening:
            self._release()
            self._sockets = [_bound(family, address) for family, address in self._addresses]

    def reopen(self, reason: str) -> None:
        """Take back a reason; without any other left, connections are accepted."""
        if reason in self._reasons:
            self._reasons.discard(reason)
            self.listen()

    async def close(self) -> None:
        """Give the port up; connections that are open stay."""
        self._release()
        if self._entering:
            await asyncio.wait(self._entering)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:
            return  # it has gone again, or descriptors have run out
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._tasks.start(self._enter(accepted), "let a client in")
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _enter(self, accepted: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._factory, accepted)

    def _try(self, step: Callable[[], object]) -> None:
        """Take a step of listening; if it fails, give everything up and name the port."""
        try:
            step()
        except OSError as error:
            self._release()
            host, port = self._addresses[-1][1]
            words = (error.strerror or str(error)).lower()
            raise OSError(error.errno, f"address {host}:{port}: {words}") from None

    def _release(self) -> None:
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            self._loop.remove_reader(one)
            one.close()
        self._listening = False


def _bound(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
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
