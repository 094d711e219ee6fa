"""A request's body, received from the client within its limits of size and time."""

import asyncio
from dataclasses import dataclass

from aiohttp import hdrs
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from replicarouter.errors import BodyTooLarge, ExpectationFailed, MalformedRequest, RequestTimeout
from replicarouter.proxy.aiohttp_internals import InboundRequest

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_BODILESS_METHODS = frozenset(("GET", "DELETE", "HEAD"))


@dataclass(slots=True)
class Body:
    """A whole body in memory. `length` is None when the request has none; `data` is dropped once it
    has been sent, since nothing is sent again after that."""

    data: bytes
    length: int | None

    def drop(self) -> None:
        """Let go of the bytes."""
        self.data = b""


def arrived_body(request: InboundRequest, *, most: int) -> Body | None:
    """The body when there is nothing to wait for: there is none, or it came with its head.

    Raises `MalformedRequest` for a transfer encoding that the replica might read in another way.
    """
    message = request.message
    if message.chunked and message.headers.get(hdrs.TRANSFER_ENCODING, "").lower() != "chunked":
        raise MalformedRequest("Only the transfer encoding 'chunked' is understood.")
    if message.headers.get(hdrs.CONTENT_LENGTH) is None and not message.chunked:
        return Body(b"", None if message.method in _BODILESS_METHODS else 0)
    content = request.content
    if not content.is_eof() or content.total_bytes > most:
        return None
    data = content.read_nowait()
    return Body(data, len(data))


async def receive_body(request: InboundRequest, *, most: int, gap: float) -> Body:
    """Read a body that is still arriving: at most `most` bytes, no silence longer than `gap` seconds.

    Raises `BodyTooLarge` (before reading when the length is declared), `RequestTimeout`,
    `MalformedRequest` for broken framing, `ExpectationFailed`.
    """
    declared = request.message.headers.get(hdrs.CONTENT_LENGTH)
    if declared is not None and int(declared) > most:
        raise _too_large(most)
    _continue(request)
    content = request.content
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            async with asyncio.timeout(gap or None):
                part = await content.readany()
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > most:
                raise _too_large(most)
    except TimeoutError:
        raise RequestTimeout(
            f"No byte of the request body arrived for {gap:g} seconds; send it again."
        ) from None
    except (RequestPayloadError, HttpProcessingError):
        raise MalformedRequest("The request body is not framed as HTTP requires.") from None
    return Body(parts[0] if len(parts) == 1 else b"".join(parts), size)


def _continue(request: InboundRequest) -> None:
    """Answer `Expect: 100-continue`, which is a matter of this hop alone."""
    expectation = request.message.headers.get(hdrs.EXPECT)
    if expectation is None or not request.modern:
        return
    if expectation.strip().lower() != "100-continue":
        raise ExpectationFailed("Only 'Expect: 100-continue' is understood.")
    transport = request.client.transport
    if transport is not None and not request.content.is_eof():
        transport.write(CONTINUE)


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {most} bytes, the most this router takes (setting max_body_bytes)."
    )
