"""All that the router uses of aiohttp's connector beyond its documented API.

`tests/proxy/test_aiohttp_connector.py` fails when a release changes any of it; the version range in
pyproject.toml says which releases were seen.
"""

import asyncio
import errno
import functools
import os
import select
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from time import monotonic
from typing import Any, Protocol

from aiohttp import ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from yarl import URL

from replicarouter.fleet.one_step import OneStepConnector
from replicarouter.proxy.descriptors import Descriptors
from replicarouter.proxy.reads import Stream, reads_of
from replicarouter.proxy.straight import Straight
from replicarouter.tls import bound_buffers

__all__ = ("Connector", "Pooled", "Receiver", "ReplicaConnection")

_NO_ANSWERS: deque[Any] = deque(maxlen=0)

_QUICK_ACK = socket.TCP_QUICKACK if sys.platform == "linux" else None
"""tcp(7)."""


class Receiver(Protocol):
    """Who gets the bytes of a replica's connection."""

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""

    def lost(self, error: BaseException | None) -> None:
        """The connection has ended; `error` is None when the replica closed it in order."""


class ReplicaConnection(Straight, ResponseHandler):
    """A pooled upstream connection that hands its bytes to a receiver instead of a parser, and the tokens of
    a `stream` past it: a step more between them and the transport is a tenth of what each costs here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        # asyncio's way of asking for it costs a system call before Python 3.12.
        self.loop = loop
        # A queue for answers that aiohttp has parsed: none will be, and each would take 760 bytes.
        self._buffer = _NO_ANSWERS
        self.receiver: Receiver | None = None
        self.pooled: Pooled | None = None
        self.on_closed: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.stream: Stream | None = None
        self._reads = reads_of(self)
        # The transport looks this up once, when it is made.
        self.data_received = self._reads.send  # type: ignore[assignment,method-assign]
        self._straight: socket.socket | None = None
        self._ready: Callable[[int], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with an empty connection."""
        super().connection_made(transport)
        bound_buffers(transport)

    def take(self, data: bytes) -> None:
        """Pass bytes on; unasked ones on an idle connection make it unfit for use."""
        if not data:
            return
        if self.receiver is None:
            self.close()
        else:
            self.receiver.feed(data)

    @property
    def quiet(self) -> bool:
        """Whether nothing has come of its replica, nor the end of it, that was not read yet. Of an open one.

        Where a replica closes the connection right behind its answer, another request for which it is taken
        in the same turn may be faster than the event loop, and so may one that has waited for its end.
        """
        if self._ready is None:
            assert self.transport is not None
            poll = select.poll()
            poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
            self._ready = poll.poll
        return not self._ready(0)

    def settle(self) -> None:
        """Have a stream begin or end, and its exchange and observer know what only its reads know yet."""
        if self._reads.gi_suspended:
            self._reads.send(b"")

    def acknowledge_in_pairs(self) -> None:
        """Have the kernel acknowledge every other read of an answer that comes in small pieces, not each.

        To acknowledge is a packet of its own and a fifth of what passing on a token costs. As delayed
        acknowledgements go (RFC 9293, section 3.8.6.3), the kernel falls back to one each by itself after a
        pause of 40 ms.
        """
        if self.transport is None or _QUICK_ACK is None:
            return
        # The transport's own takes longer to ask for; with TLS there is no other.
        own = self.straight() or self.transport.get_extra_info("socket")
        with suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 0)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the receiver and whoever counts connections."""
        receiver, self.receiver = self.receiver, None
        closed, self.on_closed = self.on_closed, None
        self.on_writable = None
        self._let_go()
        super().connection_lost(exc)
        if closed is not None:
            closed()
        if receiver is not None:
            receiver.lost(exc)
        # They know this connection, and it them.
        self._reads.close()

    def resume_writing(self) -> None:
        """The replica takes bytes again."""
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def close(self) -> None:
        """Close at once: a replica that takes no bytes must not hold the connection open."""
        self.abort()


class Pooled:
    """The right to use one connection. There is one object for each connection, for all its uses: to make
    one of aiohttp's own for every request costs as much as to find the connection.

    `link` is whatever its user keeps with it from one use to the next.
    """

    __slots__ = ("_connector", "_key", "link", "protocol")

    def __init__(self, connector: "Connector", key: ConnectionKey, protocol: ReplicaConnection) -> None:
        self._connector = connector
        self._key = key
        self.protocol = protocol
        self.link: Any = None

    def release(self) -> None:
        """Give the connection back to the pool."""
        self._connector.give_back(self._key, self.protocol)

    def close(self) -> None:
        """Close it, and count it no more."""
        self._connector.give_back(self._key, self.protocol, should_close=True)


class Connector(OneStepConnector):
    """aiohttp's connector with its pool and limits, making connections of our kind."""

    def __init__(
        self,
        *,
        limit: int,
        limit_per_host: int,
        keepalive_timeout: float,
        ssl: SSLContext | bool = True,
        descriptors: Descriptors | None = None,
    ) -> None:
        super().__init__(
            limit=limit, limit_per_host=limit_per_host, keepalive_timeout=keepalive_timeout, ssl=ssl
        )
        make: type[ResponseHandler] = ReplicaConnection
        self._factory = functools.partial(make, loop=self._loop)
        self._back: set[ReplicaConnection] = set()  # Those given back in this turn of the event loop.
        self._descriptors = descriptors
        if descriptors is not None:
            descriptors.count(lambda: self.in_use)

    @property
    def in_use(self) -> int:
        """Connections that are open or being opened."""
        return len(self._acquired) + sum(map(len, self._conns.values()))

    def template(self, url: str) -> ClientRequest:
        """What the connector wants to know of a replica's address; made once, used for every request."""
        return ClientRequest("POST", URL(url), loop=self._loop)

    def take_idle(self, key: ConnectionKey, *, wary: bool = False) -> Pooled | None:
        """A pooled connection, if one is idle: what `connect` does first, without a coroutine.

        `key` is the template's `connection_key`, which aiohttp builds anew at every look. `wary`: any of them
        may have been given back this very moment, not only those of this turn.
        """
        idle = self._conns.get(key)
        limit = self._keepalive_timeout
        while idle:
            protocol, since = idle.popleft()
            if not idle:
                del self._conns[key]
            transport = protocol.transport
            fresh = limit is None or monotonic() - since <= limit
            if fresh and transport is not None and not transport.is_closing():
                pooled: Pooled = protocol.pooled  # type: ignore[attr-defined] # All are of our kind.
                if not (wary or protocol in self._back) or pooled.protocol.quiet:
                    self._acquired.add(protocol)
                    if self._limit_per_host:
                        self._acquired_per_host[key].add(protocol)
                    return pooled
            protocol.close()
        return None

    def give_back(
        self, key: ConnectionKey, protocol: ReplicaConnection, *, should_close: bool = False
    ) -> None:
        """The use of a connection has ended."""
        if not should_close:
            if not self._back:
                self._loop.call_soon(self._back.clear)
            self._back.add(protocol)
        if (
            should_close
            or self._cleanup_handle is None
            or self._waiters
            or self._limit_per_host
            or self._closed
        ):
            self._release(key, protocol, should_close=should_close)
            return
        # What `_release` does when nobody waits for a connection.
        self._acquired.discard(protocol)
        self._conns[key].append((protocol, monotonic()))

    def drop_idle(self, key: ConnectionKey) -> None:
        """Close the pooled connections to one address."""
        for protocol, _ in self._conns.pop(key, ()):
            protocol.close()

    async def open(self, template: ClientRequest, timeout: ClientTimeout) -> Pooled:
        """A pooled or new connection; its `sock_connect` bounds TCP and TLS.

        Raises `OSError` like the operating system when descriptors are scarce.
        """
        if self._descriptors is not None and self._descriptors.scarce:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        connection = await self.connect(template, [], timeout)
        # From here on ours stands for it: aiohttp's must not give the connection back when it is forgotten.
        protocol, connection._protocol = connection._protocol, None
        assert isinstance(protocol, ReplicaConnection)
        if protocol.pooled is None:
            protocol.pooled = Pooled(self, template.connection_key, protocol)
        return protocol.pooled
