"""A request's body, received from the client within its limits of size and time."""

import asyncio
from dataclasses import dataclass

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from replicarouter.errors import BodyTooLarge, ExpectationFailed, InvalidRequest, RequestTimeout
from replicarouter.protocol.headers import RawHeaders, header
from replicarouter.proxy.aiohttp_internals import InboundRequest

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Body:
    """A whole body in memory. `length` is None when the request has none; `data` is dropped once it
    has been sent, since nothing is sent again after that."""

    data: bytes
    length: int | None

    def drop(self) -> None:
        """Let go of the bytes."""
        self.data = b""


async def receive_body(request: InboundRequest, headers: RawHeaders, *, most: int, gap: float) -> Body:
    """Read the whole body: at most `most` bytes, no silence longer than `gap` seconds.

    Raises `BodyTooLarge` (before reading when the length is declared), `RequestTimeout`,
    `InvalidRequest` for broken framing, `ExpectationFailed`.
    """
    declared = header(headers, b"content-length")
    if declared is None and not request.message.chunked:
        return Body(b"", None if request.message.method in ("GET", "DELETE", "HEAD") else 0)
    if declared is not None and int(declared) > most:
        raise _too_large(most)
    _continue(request, headers)
    content = request.content
    if content.is_eof():
        data = content.read_nowait()
    else:
        data = await _read(request, most, gap)
    if len(data) > most:
        raise _too_large(most)
    return Body(data, len(data))


async def _read(request: InboundRequest, most: int, gap: float) -> bytes:
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
        raise InvalidRequest("The request body is not framed as HTTP requires.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _continue(request: InboundRequest, headers: RawHeaders) -> None:
    """Answer `Expect: 100-continue`, which is a matter of this hop alone."""
    expectation = header(headers, b"expect")
    if expectation is None or not request.modern:
        return
    if expectation.strip().lower() != b"100-continue":
        raise ExpectationFailed("Only 'Expect: 100-continue' is understood.")
    transport = request.client.transport
    if transport is not None and not request.content.is_eof():
        transport.write(CONTINUE)


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {most} bytes, the most this router takes (setting max_body_bytes)."
    )
