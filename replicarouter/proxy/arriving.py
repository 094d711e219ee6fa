"""The bytes of a request's body as they come from its client, within its limits of size and time."""

import asyncio
from collections.abc import Callable

from aiohttp import StreamReader, hdrs
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from replicarouter.errors import (
    BodyTooLarge,
    ExpectationFailed,
    MalformedRequest,
    RequestTimeout,
    RouterError,
)
from replicarouter.proxy.aiohttp_payload import divert, restore
from replicarouter.proxy.inbound import InboundRequest, WholeBody
from replicarouter.words import counted

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_BROKEN = (RequestPayloadError, HttpProcessingError)


class Arriving:
    """The bytes of a body as they come: at most `most`, with no silence longer than `gap` seconds.

    `declared` is its length if the client has said it, `received` counts what was read, and `ended` says
    that it was all. Raises `BodyTooLarge` before anything is read when the length is declared, and
    `ExpectationFailed`.
    """

    __slots__ = ("_gap", "_invited", "_most", "_pour", "declared", "ended", "received", "request")

    def __init__(self, request: InboundRequest, *, most: int, gap: float) -> None:
        headers = request.message.headers
        declared = headers.get(hdrs.CONTENT_LENGTH)
        self.declared = None if declared is None else int(declared)
        if self.declared is not None and self.declared > most:
            raise _too_large(most)
        expectation = headers.get(hdrs.EXPECT)
        if expectation is not None and request.modern and expectation.strip().lower() != "100-continue":
            raise ExpectationFailed("Only 'Expect: 100-continue' is understood.")
        self._invited = expectation is None or not request.modern
        self.request = request
        self._most = most
        self._gap = gap
        self._pour: _Pour | None = None
        self.received = 0
        self.ended = False

    async def read(self) -> bytes:
        """What has come since the last call, at least one byte; nothing once the body has ended.

        The first call tells a client to send that waits for it: a matter of this hop alone. Raises
        `RequestTimeout`, `BodyTooLarge`, and `MalformedRequest` for broken framing.
        """
        content = self.request.content
        if not self._invited:
            self._invite()
        try:
            if content.total_bytes > self.received:
                data = content.read_nowait()
            else:
                async with asyncio.timeout(self._gap or None):
                    data = await content.readany()
        except TimeoutError:
            raise _silent(self._gap) from None
        except _BROKEN:
            raise _broken() from None
        self.note(len(data))
        self.ended = not data or (content.at_eof() and content.exception() is None)
        return data

    async def pour(self, give: Callable[[bytes], None]) -> None:
        """Have every piece given to `give` in the moment in which it comes, until the body has ended.

        Raises what `read` and `give` raise. Other bytes than those that were given may have come when this
        is cancelled; they wait to be read.
        """
        content = self.request.content
        if not self._invited:
            self._invite()
        self._pour = pour = _Pour(self, give)
        try:
            while content.total_bytes > self.received:
                pour.take(content.read_nowait())
            error = content.exception()
            if error is not None:
                pour.failed(error)
            elif content.is_eof():
                pour.ended()
            await pour.run(content, self._gap)
        except _BROKEN:
            raise _broken() from None
        finally:
            # Also where all of it had come before: the next request must be read.
            self.resume()
            self._pour = None
        self.ended = True

    def pause(self) -> None:
        """Read nothing from the client for the time being, nor expect it to send, where it is poured."""
        transport = self.request.client.transport
        if transport is not None:
            transport.pause_reading()
        if self._pour is not None:
            self._pour.paused = True

    def resume(self) -> None:
        """Go on."""
        pour, transport = self._pour, self.request.client.transport
        if pour is not None and pour.paused:
            pour.paused = False
            pour.note_sign()
            if transport is not None:
                transport.resume_reading()

    def note(self, count: int) -> None:
        """Count bytes that have come; raises `BodyTooLarge`."""
        self.received += count
        if self.received > self._most:
            raise _too_large(self._most)

    def _invite(self) -> None:
        self._invited = True
        transport = self.request.client.transport
        if transport is not None and not self.request.content.is_eof():
            transport.write(CONTINUE)


class _Pour:
    """Takes what comes and gives it on."""

    __slots__ = ("_arriving", "_done", "_give", "_last", "_loop", "_timer", "paused")

    def __init__(self, arriving: Arriving, give: Callable[[bytes], None]) -> None:
        self._arriving = arriving
        self._give = give
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.paused = False

    async def run(self, content: StreamReader | WholeBody, gap: float) -> None:
        """Until the body has ended, or something is wrong with it."""
        if self._done.done() or not isinstance(content, StreamReader):
            await self._done
            return
        before = divert(content, self)
        if self.paused:
            self._arriving.pause()
        if gap:
            self._look(gap)
        try:
            await self._done
        finally:
            restore(content, before)
            if self._timer is not None:
                self._timer.cancel()

    def note_sign(self) -> None:
        """The client is not silent, or could not be otherwise."""
        self._last = self._loop.time()

    def take(self, data: bytes) -> None:
        """Give bytes on. An error is the end; what comes behind it is of no interest any more."""
        self._last = self._loop.time()
        try:
            self._arriving.note(len(data))
            self._give(data)
        except RouterError as error:
            self.failed(error)

    def ended(self) -> None:
        """The body is whole."""
        if not self._done.done():
            self._done.set_result(None)

    def failed(self, error: BaseException) -> None:
        """It will never be whole."""
        if not self._done.done():
            self._done.set_exception(_broken() if isinstance(error, _BROKEN) else error)

    def _look(self, gap: float) -> None:
        """Look whether the client has been silent for too long, and when to look again."""
        left = gap if self.paused else self._last + gap - self._loop.time()
        if left <= 0:
            self.failed(_silent(gap))
        else:
            self._timer = self._loop.call_later(left, self._look, gap)


def _silent(gap: float) -> RequestTimeout:
    """The error for a client that has sent nothing for `gap` seconds."""
    return RequestTimeout(f"No byte of the request body arrived for {counted(gap, 'second')}; send it again.")


def _broken() -> MalformedRequest:
    return MalformedRequest("The request body is not framed as HTTP requires.")


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {most} bytes, the most this router takes (setting max_body_bytes)."
    )
