"""A request's body, received from the client within its limits of size, time and memory."""

import asyncio
from dataclasses import dataclass, field
from io import BytesIO
from typing import ClassVar, Literal

from aiohttp import hdrs
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from replicarouter.errors import BodyTooLarge, ExpectationFailed, MalformedRequest, RequestTimeout
from replicarouter.protocol.json_scan import Span
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.memory import BodyMemory
from replicarouter.words import counted

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_BODILESS_METHODS = frozenset(("GET", "DELETE", "HEAD"))


@dataclass(slots=True)
class Body:
    """A whole body in memory. `length` is None when the request has none; `held` bytes of it count
    against `memory` until it is dropped."""

    data: bytes
    length: int | None
    memory: BodyMemory | None = field(default=None, compare=False)
    held: int = field(default=0, compare=False)

    streams: ClassVar[Literal[False]] = False
    replayable: ClassVar[bool] = True
    sent: ClassVar[bool] = True

    def put(self, span: Span, value: bytes) -> None:
        """Have `value` in place of what stands at `span`."""
        start, end = span
        self.data = b"".join((self.data[:start], value, self.data[end:]))
        self.length = len(self.data)

    def drop(self) -> None:
        """Let go of the bytes: nothing is sent again. To drop twice is to drop once."""
        self.data = b""
        if self.held and self.memory is not None:
            self.memory.give_back(self.held)
            self.held = 0


def arrived_body(request: InboundRequest, *, most: int, memory: BodyMemory) -> Body | None:
    """The body when there is nothing to wait for: there is none, or it came with its head.

    Raises `MalformedRequest` for a transfer encoding that the replica might read in another way, and
    `Overloaded`.
    """
    message = request.message
    if message.chunked and message.headers.get(hdrs.TRANSFER_ENCODING, "").lower() != "chunked":
        raise MalformedRequest("Only the transfer encoding 'chunked' is understood.")
    if message.headers.get(hdrs.CONTENT_LENGTH) is None and not message.chunked:
        return Body(b"", None if message.method in _BODILESS_METHODS else 0)
    content = request.content
    if not content.is_eof() or content.total_bytes > most:
        return None
    size = content.total_bytes
    if not memory.take(size):
        raise memory.full()
    return Body(content.read_nowait(), size, memory, size)


class Arriving:
    """The bytes of a body as they come: at most `most`, with no silence longer than `gap` seconds.

    `declared` is its length if the client has said it, `received` counts what was read, and `ended` says
    that it was all. Raises `BodyTooLarge` before anything is read when the length is declared, and
    `ExpectationFailed`.
    """

    __slots__ = ("_gap", "_invited", "_most", "declared", "ended", "received", "request")

    def __init__(self, request: InboundRequest, *, most: int, gap: float) -> None:
        declared = request.message.headers.get(hdrs.CONTENT_LENGTH)
        self.declared = None if declared is None else int(declared)
        if self.declared is not None and self.declared > most:
            raise _too_large(most)
        expectation = request.message.headers.get(hdrs.EXPECT)
        if expectation is not None and request.modern and expectation.strip().lower() != "100-continue":
            raise ExpectationFailed("Only 'Expect: 100-continue' is understood.")
        self._invited = expectation is None or not request.modern
        self.request = request
        self._most = most
        self._gap = gap
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
            async with asyncio.timeout(self._gap or None):
                data = await content.readany()
        except TimeoutError:
            raise RequestTimeout(
                f"No byte of the request body arrived for {counted(self._gap, 'second')}; send it again."
            ) from None
        except (RequestPayloadError, HttpProcessingError):
            raise MalformedRequest("The request body is not framed as HTTP requires.") from None
        self.received += len(data)
        self.ended = not data or (content.at_eof() and content.exception() is None)
        if self.received > self._most:
            raise _too_large(self._most)
        return data

    def _invite(self) -> None:
        self._invited = True
        transport = self.request.client.transport
        if transport is not None and not self.request.content.is_eof():
            transport.write(CONTINUE)


async def receive_body(request: InboundRequest, *, most: int, gap: float, memory: BodyMemory) -> Body:
    """Read a body that is still arriving, all of it; it counts against `memory` from its first byte on,
    and as a whole where its length is declared.

    Raises what `Arriving` raises, and `Overloaded`.
    """
    arriving = Arriving(request, most=most, gap=gap)
    body = Body(b"", 0, memory)
    # It grows in place and gives its bytes away as they are: they are copied once, piece by piece.
    buffer = BytesIO()
    try:
        _hold(body, arriving.declared or 0)
        while not arriving.ended:
            buffer.write(await arriving.read())
            _hold(body, arriving.received)
    except BaseException:
        body.drop()
        raise
    body.data = buffer.getvalue()
    body.length = arriving.received
    return body


def _hold(body: Body, size: int) -> None:
    more = size - body.held
    if more > 0 and body.memory is not None:
        if not body.memory.take(more):
            raise body.memory.full()
        body.held = size


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {most} bytes, the most this router takes (setting max_body_bytes)."
    )
