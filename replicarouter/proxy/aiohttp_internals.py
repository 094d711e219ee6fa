"""All that the router uses of aiohttp's connections of clients beyond its documented API, in one place.

`tests/proxy/test_aiohttp_internals.py` fails when a release changes any of it; the version range in
pyproject.toml says which releases were seen.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from replicarouter.errors import RequestTimeout
from replicarouter.proxy.aiohttp_errors import complaint
from replicarouter.proxy.inbound import NO_HEAD, Ahead, Heading, InboundRequest, WholeBody
from replicarouter.proxy.session import Farewell, Session
from replicarouter.proxy.straight import Straight
from replicarouter.proxy.write_watch import WriteWatch
from replicarouter.tls import bound_buffers
from replicarouter.words import counted

if TYPE_CHECKING:
    from replicarouter.proxy.aiohttp_server import FrontServer

__all__ = ("ClientConnection", "InboundRequest", "RequestHead", "Session")
SPARING = 65536
"""Bytes of a body passed on while it arrives that may wait here before its client is told to slow down."""

RequestHead = RawRequestMessage
"""A request's head as parsed."""


class ClientConnection(Straight, RequestHandler):
    """A client's connection: aiohttp's parser, with a leaner request loop and events instead of awaits."""

    __slots__ = (
        *("_eof", "_front", "_head_begun", "_head_name", "_head_timer", "_known_head", "_known_heads"),
        *("_payload", "_session", "_straight", "_wakes", "_write_watch", "full", "lookout"),
        *("on_writable", "outbox", "peer", "streamed", "task"),
    )

    def __init__(
        self, front: "FrontServer", loop: asyncio.AbstractEventLoop, options: dict[str, Any]
    ) -> None:
        options = {"access_log": None, "auto_decompress": False, **options}
        super().__init__(front, loop=loop, **options)
        self._messages = Ahead()  # type: ignore[assignment]
        self._front = front
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_begun = self._eof = self.full = False
        self._head_name = 0
        self._known_head = NO_HEAD
        self._known_heads = front.known_heads
        self.outbox = front.outbox
        self._wakes = front.wakes
        self.lookout = front.lookout
        self.streamed = False
        self._payload: StreamReader | WholeBody | None = None
        self._session: Session | None = None
        self._straight: socket.socket | None = None
        self._write_watch = WriteWatch(front.write_timeout)
        self.peer = ""
        self.task: asyncio.Task[None] | None = None
        self.on_writable: Callable[[], None] | None = None

    async def start(self) -> None:
        """Serve one request after the other, in this connection's only task.

        aiohttp's own loop makes a task, a writer and a request object for each; here the handler
        writes to the transport itself.
        """
        self.task = asyncio.current_task()
        try:
            while not self._force_close:
                request = None
                if not self._messages:
                    request = await self._wait()
                    self._waiter = None
                    self._wakes.began(self)
                request = request or self._parsed_request()
                if request is None:
                    break
                self._request_in_progress = True
                payload = self._payload = request.content
                try:
                    keep_alive = await self._front.handle(request)
                finally:
                    self._request_in_progress = False
                    self._payload = None
                    if self._handler_waiter is not None:
                        self._tell_handled(self._handler_waiter)
                if self._upgraded or not payload.is_eof():
                    keep_alive = await self._wind_up(payload, keep_alive)
                if not keep_alive or self._close or self._force_close:
                    break
                self._await_another()
                if self._messages:
                    await self._give_way()
        finally:
            # Cancelled when the client has left; an answer in the buffer is still written out.
            self._task_handler = None
            self._wakes.began(self)
            if self.transport is not None:
                self.transport.close()
                self._write_watch.see_off(self.transport)

    def force_close(self) -> None:
        """Close, be it idle; what is still in the buffer is written out, as long as the client takes it."""
        transport = self.transport
        super().force_close()
        if transport is not None:
            self._write_watch.see_off(transport)

    async def _give_way(self) -> None:
        """Who sends requests ahead holds up nobody, nor do answers pile up that he does not take."""
        with suppress(ConnectionError):
            await (self._drain_helper() if self.full else asyncio.sleep(0))

    def _tell_handled(self, waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_result(None)

    def _wait(self) -> "asyncio.Future[InboundRequest | None]":
        """What a request is waited for with; aiohttp says no more than that something has come."""
        if self._head_begun and self._head_timer is None:
            self._expect_head()
        if self.streamed:
            self._expect_another()
        come: asyncio.Future[InboundRequest | None] = self._loop.create_future()
        self._waiter = come  # type: ignore[assignment]
        return come

    def _parsed_request(self) -> InboundRequest | None:
        """The next request that was parsed; None, and an answer, for what is none."""
        message, payload = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        if not isinstance(message, RawRequestMessage):
            self._front.refuse(self, complaint(message.exc))
            return None
        return InboundRequest(Heading(message), payload, self)

    async def _wind_up(self, payload: StreamReader | WholeBody, keep_alive: bool) -> bool:
        """End what an answered request leaves behind; True when the connection can go on with the next."""
        if not payload.is_eof():
            await self._drop_rest(payload)
            return False
        if self._session is not None:
            await self._bid_farewell()
            return False
        if keep_alive:
            self._decline_upgrade()
        return keep_alive

    def read_sparingly(self, content: StreamReader) -> None:
        """Let little of a body wait unread: it may have to wait long for its replica."""
        content._low_water, content._high_water = SPARING, 2 * SPARING

    def switch(self, session: Session) -> bytes:
        """Hand over to `session` what the client sends from now on; what it has sent too early.

        For a request to upgrade, when its answer has been written. The connection closes when the handler
        returns.
        """
        self._session = session
        early, self._message_tail = self._message_tail, b""
        if self._buffer_paused:
            self._resume_reading_if_drained()
        return early

    async def _bid_farewell(self) -> None:
        """End a session: the client sees the end behind all that was written, and has a while to leave."""
        transport = self.transport
        if transport is None or self._eof or not transport.can_write_eof():
            return
        self._session = farewell = Farewell(self._loop.create_future())
        await farewell.bid(transport, self._lingering_time)

    async def _drop_rest(self, payload: StreamReader | WholeBody) -> None:
        """Read on a while after an early answer: closing on unread bytes could destroy the answer."""
        with suppress(Exception):
            async with asyncio.timeout(self._lingering_time):
                while await payload.readany():
                    pass

    def _decline_upgrade(self) -> None:
        """Go on with HTTP behind a request to upgrade that was answered as any other."""
        if self._messages or self._parser is None:
            return
        self._parser.set_upgraded(False)
        self._upgraded = False
        tail, self._message_tail = self._message_tail, b""
        if tail:
            self.data_received(tail)

    @property
    def idle(self) -> bool:
        """Whether a request was answered and no other has begun."""
        return self._request_count > 0 and self._waiter is not None and not self._head_begun

    def _await_another(self) -> None:
        """Start the time that an idle connection has."""
        deadline = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = deadline
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(deadline, self._process_keepalive)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time that a client has for its first head."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        bound_buffers(transport)
        self._expect_head()
        if self._front.on_connection is not None:
            self._front.on_connection()

    def data_received(self, data: bytes) -> None:
        """Take a whole request whose head is known as it is, and have anything else parsed."""
        waiter = self._waiter
        if waiter is None or self._head_begun or waiter.done():
            if self._session is not None:
                self._session.take(data)
            else:
                self._parse(data)
            return
        body = self._known_head.body_in(data)
        if body is None:
            parts = self._known_heads.take_apart(data)
            known = None if parts is None else self._known_heads.find(parts)
            if known is None or (body := known.body_in(data)) is None:
                self._parse(data, parts)
                return
            self._known_head = known
        self._request_count += 1
        if self._head_timer is not None:
            self._head_came()
        request = InboundRequest(self._known_head.heading, WholeBody(body), self)
        self._wakes.wake(self, waiter, request)

    def _expect_another(self) -> None:
        """A stream has ended, and its client may go on at once."""
        self.streamed = False
        straight = self.straight()
        if straight is not None and self.transport is not None:
            self.lookout.expect(straight.fileno(), self._come)

    def _come(self) -> None:
        """Something has come that was expected; the loop would have read it later."""
        waiter = self._waiter
        awaited = waiter is not None and not waiter.done() and not self._force_close
        if awaited and (data := self.unread()):
            self.data_received(data)

    def _parse(self, data: bytes, parts: tuple[bytes, bytes] | None = None) -> None:
        """Parse; a head that has begun must end in time. `parts` of the head, if this may be a whole
        request."""
        parsed = self._request_count
        payload = self._payload
        answering = payload is not None and payload.is_eof()
        self._feed_parser(data)
        if payload is not None and not answering and self._messages:
            self._tell_of_breakage(payload)
        if self._request_count != parsed:
            message = self._messages[-1][0]
            if parts is not None and isinstance(message, RawRequestMessage):
                self._head_name = self._known_heads.note(parts, message, self._head_name)
            self._head_came()
        elif not data:
            return  # aiohttp's way of having buffered bytes parsed
        elif self._waiter is not None and not self._waiter.done():
            self._head_begun = True
            if self._head_timer is None:
                self._expect_head()
        elif answering:
            # The next head begins behind a request that is still being answered.
            self._head_begun = True

    def _feed_parser(self, data: bytes) -> None:
        waiter = self._waiter
        super().data_received(data)
        if waiter is not None and waiter.done():
            self._wakes.woken(self)

    def _tell_of_breakage(self, payload: StreamReader | WholeBody) -> None:
        """Behind a body that is not whole the parser has only an error to give: tell who reads the body."""
        broken = not isinstance(self._messages[-1][0], RawRequestMessage)
        if broken and isinstance(payload, StreamReader) and not payload.is_eof():
            payload.set_exception(RequestPayloadError("broken framing"))

    def eof_received(self) -> None:
        """A half-close counts as gone: nothing that is still to come is worth an engine's time."""
        self._eof = True
        if self._session is not None:
            self._session.left()
        elif self.transport is not None and self._request_in_progress:
            # An answer that came before is not lost.
            self.outbox.flush()
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers; the server cancels the handler."""
        self._head_came()
        self._write_watch.stop()
        self.on_writable = None
        if self._straight is not None:
            self.lookout.forget(self._straight.fileno())
        self._let_go()
        if self._session is not None:
            # It knows best how it has ended; its handler returns by itself.
            self._task_handler = None
            self._session.left()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client's buffer is full: it must take something in time."""
        super().pause_writing()
        self.full = True
        self._write_watch.start(self.transport)

    def resume_writing(self) -> None:
        """The client takes bytes again."""
        self._write_watch.eased()
        super().resume_writing()
        self.full = False
        if self.on_writable is not None:
            self.on_writable()

    def _expect_head(self) -> None:
        limit = self._front.head_timeout
        if limit > 0:
            self._head_timer = self._loop.call_later(limit, self._head_overdue)

    def _head_came(self) -> None:
        self._head_begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_overdue(self) -> None:
        self._head_timer = None
        if self._waiter is None:
            return
        if self._head_begun:
            limit = self._front.head_timeout
            error = RequestTimeout(f"The request's head was not complete after {counted(limit, 'second')}.")
            self._front.refuse(self, error)
        self.force_close()
