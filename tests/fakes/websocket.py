"""WebSocket sessions for tests: frames as bytes, scripts of raw replicas, and a real server as a replica."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.fakes.client import HOST, request
from tests.fakes.replica import FOR_EVER, Connection, Received, Script

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: realtime\r\n\r\n"
)
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "realtime, x",
}
TARGET = "/v1/realtime?model=m1"


def frame(payload: bytes = b"", opcode: int = TEXT, *, masked: bool = False, final: bool = True) -> bytes:
    """One frame (RFC 6455, section 5.2); clients mask theirs."""
    first, size, mask = opcode | final << 7, len(payload), masked << 7
    if size < 126:
        head = struct.pack("!BB", first, mask | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, mask | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask | 127, size)
    if not masked:
        return head + payload
    key = b"\x11\x22\x33\x44"
    turned = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return head + key + turned


def close_frame(code: int = 1000, reason: bytes = b"", *, masked: bool = False) -> bytes:
    """The frame by which a side says that it will send no more."""
    return frame(struct.pack("!H", code) + reason, CLOSE, masked=masked)


def handshake(
    target: str = TARGET, headers: Mapping[str, str] | None = None, *, method: str = "GET"
) -> bytes:
    """The request of a client that asks for a session."""
    return request(method, target, headers={**HANDSHAKE, **dict(headers or {})})


def session(talk: Callable[[Connection], Awaitable[None]] | None = None, answer: bytes = SWITCHING) -> Script:
    """Answer with a 101, talk, and stay; what nobody reads remains in the wire's `unread`."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(answer)
        if talk is not None:
            await talk(connection)
        await asyncio.Event().wait()

    return script


async def echo(connection: Connection) -> None:
    """Send back whatever comes, as it comes."""
    wire = connection.wire
    while True:
        await wire.until(lambda: bool(wire.unread) or wire.over, "bytes", FOR_EVER)
        if not wire.unread:
            return
        data = bytes(wire.unread)
        wire.unread.clear()
        await connection.send(data)


class WebSocketReplica:
    """A replica with a real WebSocket server on `/v1/realtime`; `seen` are its requests."""

    def __init__(self, talk: Callable[[web.WebSocketResponse], Awaitable[None]], **options: Any) -> None:
        self._talk = talk
        self._options = options
        self._runner: web.AppRunner | None = None
        self.seen: list[web.Request] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._runner is not None
        return f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/health", self._health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/v1/realtime", self._session)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0, backlog=4096).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m1", "object": "model"}]})

    async def _session(self, request: web.Request) -> web.WebSocketResponse:
        self.seen.append(request)
        socket = web.WebSocketResponse(max_msg_size=0, **self._options)
        await socket.prepare(request)
        await self._talk(socket)
        return socket


async def echo_messages(socket: web.WebSocketResponse) -> None:
    """Send every message back; the library answers pings and the closing handshake."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is aiohttp.WSMsgType.BINARY:
            await socket.send_bytes(message.data)
