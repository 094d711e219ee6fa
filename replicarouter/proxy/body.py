"""A request's body, received from the client within its limits of size, time and memory."""

from dataclasses import dataclass, field
from io import BytesIO
from typing import ClassVar, Literal

from aiohttp import hdrs

from replicarouter.errors import MalformedRequest
from replicarouter.protocol.json_scan import Span
from replicarouter.protocol.request import LARGE
from replicarouter.proxy.arriving import Arriving
from replicarouter.proxy.inbound import InboundRequest, WholeBody
from replicarouter.proxy.memory import BodyMemory

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

    def claim(self) -> bool:
        """Whether it can be sent again."""
        return True

    def drop(self) -> None:
        """Let go of the bytes: nothing is sent again. To drop twice is to drop once."""
        self.data = b""
        if self.held and self.memory is not None:
            self.memory.give_back(self.held)
            self.held = 0


def arrived_body(request: InboundRequest, *, most: int, memory: BodyMemory) -> Body | None:
    """The body when there is nothing to wait for: there is none, or it came with its head and is not large.

    Raises `MalformedRequest` for a transfer encoding that the replica might read in another way, and
    `Overloaded`.
    """
    content = request.content
    if not isinstance(content, WholeBody):
        message = request.message
        if message.chunked and message.headers.get(hdrs.TRANSFER_ENCODING, "").lower() != "chunked":
            raise MalformedRequest("Only the transfer encoding 'chunked' is understood.")
        if message.headers.get(hdrs.CONTENT_LENGTH) is None and not message.chunked:
            return Body(b"", None if message.method in _BODILESS_METHODS else 0)
        if not content.is_eof():
            return None
    size = content.total_bytes
    if size > most or size > LARGE:
        return None
    if not memory.take(size):
        raise memory.full()
    return Body(content.read_nowait(), size, memory, size)


async def receive_body(request: InboundRequest, *, most: int, gap: float, memory: BodyMemory) -> Body:
    """Read a body that is still arriving, all of it; it counts against `memory` from its first byte on,
    and as a whole where its length is declared.

    Raises what `Arriving` raises, and `Overloaded`.
    """
    return await Gathering(Arriving(request, most=most, gap=gap), memory).whole()


class Gathering:
    """A body on its way into memory; `drop` it unless it was given away."""

    __slots__ = ("_body", "_buffer", "arriving")

    def __init__(self, arriving: Arriving, memory: BodyMemory) -> None:
        self.arriving = arriving
        self._body = Body(b"", 0, memory)
        # It grows in place and gives its bytes away as they are: they are copied once, piece by piece.
        self._buffer = BytesIO()

    async def begin(self, least: int) -> None:
        """Wait until more than `least` bytes have come, or all. Raises as `receive_body` does."""
        while not self.arriving.ended and self.arriving.received <= least:
            self._add(await self.arriving.read())

    def start(self, count: int) -> bytes:
        """The first bytes of what has come."""
        with self._buffer.getbuffer() as come:
            return bytes(come[:count])

    async def whole(self) -> Body:
        """All of it. Raises as `receive_body` does; then nothing is held any more."""
        body, arriving = self._body, self.arriving
        try:
            _hold(body, arriving.declared or 0)
            if not arriving.ended:
                await arriving.pour(self._add)
        except BaseException:
            self.drop()
            raise
        body.data = self._buffer.getvalue()
        body.length = arriving.received
        return body

    def give_away(self) -> tuple[bytes, int]:
        """What has come, and how much of memory was taken for it, which is the caller's now."""
        held, self._body.held = self._body.held, 0
        return self._buffer.getvalue(), held

    def drop(self) -> None:
        """Let go of what has come."""
        self._body.drop()
        self._buffer = BytesIO()

    def _add(self, data: bytes) -> None:
        self._buffer.write(data)
        _hold(self._body, self.arriving.received)


def _hold(body: Body, size: int) -> None:
    more = size - body.held
    if more > 0 and body.memory is not None:
        if not body.memory.take(more):
            raise body.memory.full()
        body.held = size
