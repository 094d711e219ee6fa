"""All that the router uses of aiohttp beyond its documented API, in one place.

`tests/proxy/test_aiohttp_internals.py` fails when a release changes any of it; the version range in
pyproject.toml says which releases were seen.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from aiohttp import ClientTimeout, TCPConnector
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server
from yarl import URL

from replicarouter.errors import HeadersTooLarge, InvalidRequest, RequestTimeout, RouterError

__all__ = (
    "ClientConnection",
    "Connector",
    "FrontServer",
    "InboundRequest",
    "Receiver",
    "ReplicaConnection",
    "Sent",
)


class Receiver(Protocol):
    """Who gets the bytes of a replica's connection."""

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""

    def lost(self, error: BaseException | None) -> None:
        """The connection has ended; `error` is None when the replica closed it in order."""


class ReplicaConnection(ResponseHandler):
    """A pooled upstream connection that hands its bytes to a receiver instead of a parser."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.receiver: Receiver | None = None
        self.on_closed: Callable[[], None] | None = None

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; unasked ones on an idle connection make it unfit for use."""
        if self.receiver is None:
            self.close()
        else:
            self.receiver.feed(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the receiver and whoever counts connections."""
        receiver, self.receiver = self.receiver, None
        closed, self.on_closed = self.on_closed, None
        super().connection_lost(exc)
        if closed is not None:
            closed()
        if receiver is not None:
            receiver.lost(exc)

    def close(self) -> None:
        """Close at once: a replica that takes no bytes must not hold the connection open."""
        self.abort()


class Connector(TCPConnector):
    """aiohttp's connector with its pool and limits, making connections of our kind."""

    def __init__(self, *, limit: int, limit_per_host: int, keepalive_timeout: float) -> None:
        super().__init__(limit=limit, limit_per_host=limit_per_host, keepalive_timeout=keepalive_timeout)
        make: type[ResponseHandler] = ReplicaConnection
        self._factory = functools.partial(make, loop=self._loop)

    def template(self, url: str) -> ClientRequest:
        """What the connector wants to know of a replica's address; made once, used for every request."""
        return ClientRequest("POST", URL(url), loop=self._loop)

    async def open(self, template: ClientRequest, timeout: ClientTimeout) -> Connection:
        """A pooled or new connection; its `sock_connect` bounds TCP and TLS."""
        return await self.connect(template, [], timeout)


class InboundRequest:
    """A client's request: its head as parsed, its body as a stream. Stands in for aiohttp's own
    request object, whose making costs as much as routing a request."""

    __slots__ = ("_task", "client", "content", "message")

    def __init__(
        self,
        message: RawRequestMessage,
        content: StreamReader,
        client: "ClientConnection",
        _writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        self.message = message
        self.content = content
        self.client = client
        self._task = task

    @property
    def modern(self) -> bool:
        """Whether the client speaks HTTP/1.1."""
        return self.message.version >= (1, 1)

    def _finish(self) -> None:
        """The server calls this when the handler has returned."""

    def _cancel(self, exc: BaseException) -> None:
        """The server calls this when the client is gone; the handler's task is cancelled besides."""


class Sent:
    """Tells the server that an answer is already on its way, and whether its connection lives on."""

    __slots__ = ("keep_alive",)

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: BaseRequest) -> None:
        """The head has been written."""

    async def write_eof(self) -> None:
        """The body has been written."""


class FrontServer(Server):
    """aiohttp's server, making connections of our kind and cancelling handlers whose client left."""

    def __init__(
        self,
        handler: Callable[[InboundRequest], Awaitable[Sent]],
        refuse: Callable[["ClientConnection", RouterError], None],
        *,
        head_timeout: float,
        write_timeout: float,
        options: dict[str, Any],
    ) -> None:
        super().__init__(
            cast(Callable[[BaseRequest], Awaitable[StreamResponse]], handler),
            request_factory=cast(Any, InboundRequest),
            handler_cancellation=True,
        )
        self._options = options
        self.refuse = refuse
        self.head_timeout = head_timeout
        self.write_timeout = write_timeout

    def __call__(self) -> "ClientConnection":
        """A protocol for a new client connection."""
        return ClientConnection(self, self._loop, self._options)


class ClientConnection(RequestHandler):
    """A client's connection: aiohttp's parser and request loop, with events instead of awaits."""

    __slots__ = ("_front", "_head_begun", "_head_timer", "_unwritten", "_write_timer", "on_writable")

    def __init__(self, front: FrontServer, loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
        options = {"access_log": None, "auto_decompress": False, **options}
        super().__init__(front, loop=loop, **options)
        self._front = front
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_begun = False
        self._write_timer: asyncio.TimerHandle | None = None
        self._unwritten = 0
        self.on_writable: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time that a client has for its first head."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Parse; a head that has begun must end in time."""
        parsed = self._request_count
        super().data_received(data)
        if self._request_count != parsed:
            self._head_begun = False
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._waiter is not None:
            self._head_begun = True
            if self._head_timer is None:
                self._expect_head()

    def eof_received(self) -> None:
        """A half-close counts as gone: nothing that is still to come is worth an engine's time."""
        if self.transport is not None and self._request_in_progress:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers; the server cancels the handler."""
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._write_timer = None
        self.on_writable = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client's buffer is full: it must take something in time."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """The client takes bytes again."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def handle_error(
        self,
        request: BaseRequest,  # noqa: ARG002
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> StreamResponse:
        """Answer what the parser refused; the corridor itself never raises."""
        self._front.refuse(self, _parse_error(exc))
        return cast(StreamResponse, Sent(keep_alive=False))

    def _expect_head(self) -> None:
        limit = self._front.head_timeout
        if limit > 0:
            self._head_timer = self._loop.call_later(limit, self._head_overdue)

    def _head_overdue(self) -> None:
        self._head_timer = None
        if self._waiter is None:
            return
        if self._head_begun:
            limit = self._front.head_timeout
            error = RequestTimeout(f"The request's head was not complete after {limit:g} seconds.")
            self._front.refuse(self, error)
        self.force_close()

    def _watch_writing(self) -> None:
        limit = self._front.write_timeout
        if limit > 0 and self.transport is not None:
            self._unwritten = self.transport.get_write_buffer_size()
            self._write_timer = self._loop.call_later(limit, self._write_overdue)

    def _write_overdue(self) -> None:
        """Close a connection that took nothing; a slow one only has to go on."""
        self._write_timer = None
        transport = self.transport
        if transport is None:
            return
        if transport.get_write_buffer_size() >= self._unwritten:
            transport.abort()
        else:
            self._watch_writing()


def _parse_error(error: BaseException | None) -> RouterError:
    if isinstance(error, LineTooLong):
        return HeadersTooLarge("A header field is too large (setting max_header_bytes).")
    if isinstance(error, BadHttpMessage) and "Too many headers" in error.message:
        return HeadersTooLarge("There are too many header fields (setting max_headers).")
    return InvalidRequest("This is not a well-formed HTTP/1.1 request.")
