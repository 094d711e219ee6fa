"""A replica that is a raw TCP server with a script: nothing stands between a test and the bytes."""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from replicarouter.tasks import TaskSet
from tests.fakes.client import HOST
from tests.fakes.message import LAST_CHUNK, Head, chunk, read_body, read_head
from tests.fakes.wire import DEADLINE, Ending, PeerGone, Wire, eventually

FOR_EVER = 3600.0
PROBED = frozenset(("/health", "/v1/models", "/metrics", "/version"))

SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def event(data: str) -> bytes:
    """One SSE event as one HTTP chunk."""
    return chunk(f"data: {data}\n\n".encode())


def sized(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    """A length-delimited JSON response; `headers` are whole lines, each with its line end."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode("latin-1") + body


OK = sized(b'{"object":"chat.completion"}')
SHORT_STREAM = SSE_HEAD + event('{"n":1}') + event('{"n":2}') + event("[DONE]") + LAST_CHUNK


class Connection:
    """One connection that was made to the replica."""

    def __init__(self, number: int, wire: Wire) -> None:
        self.number = number
        self.wire = wire
        self.requests: list[Received] = []

    async def send(self, data: bytes) -> None:
        await self.wire.send(data, FOR_EVER)

    async def send_in_pieces(self, data: bytes, size: int) -> None:
        """`size` bytes a write, with a turn of the loop between two writes."""
        for start in range(0, len(data), size):
            await self.send(data[start : start + size])
            await asyncio.sleep(0)


@dataclass(slots=True, eq=False)
class Received:
    """One request as it came; `complete` once its body had arrived whole."""

    head: Head
    connection: Connection
    at: float
    body: bytes = b""
    raw_body: bytes = b""
    complete: bool = False

    @property
    def method(self) -> str:
        return self.head.start.split(" ")[0]

    @property
    def target(self) -> str:
        return self.head.start.split(" ")[1]

    @property
    def gone(self) -> Ending | None:
        """How the peer ended the connection, if it has."""
        return self.connection.wire.ending

    @property
    def gone_at(self) -> float | None:
        return self.connection.wire.ended_at

    async def aborted(self, deadline: float = DEADLINE) -> Ending:
        """Wait until the peer has ended the connection."""
        return await self.connection.wire.gone(deadline)


Script = Callable[[Received, Connection], Awaitable[None]]


def reply(raw: bytes, *, then: Literal["keep", "fin", "rst"] = "keep") -> Script:
    """Answer every request with `raw`, and end the connection if told to."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(raw)
        if then == "fin":
            connection.wire.close()
        elif then == "rst":
            connection.wire.reset()

    return script


def held(before: bytes, gate: asyncio.Event, after: bytes = b"") -> Script:
    """Answer with `before`, and go on with `after` when the gate opens."""

    async def script(_: Received, connection: Connection) -> None:
        if before:
            await connection.send(before)
        await gate.wait()
        if after:
            await connection.send(after)

    return script


def stall(before: bytes) -> Script:
    """Answer with `before` and nothing more."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(before)
        await connection.wire.gone(FOR_EVER)

    return script


def token(text: str) -> bytes:
    """One token as engines send it: a chunk of its own, of the usual size."""
    return event(f'{{"id":"chatcmpl-1","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}')


def flow(until: asyncio.Event, *, gap: float = 0.05) -> Script:
    """Answer with tokens, one after each `gap` seconds, until the gate opens; then end well."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        number = 0
        while not until.is_set():
            await connection.send(token(f"t{number}"))
            number += 1
            await asyncio.sleep(gap)
        await connection.send(event("[DONE]") + LAST_CHUNK)

    return script


async def silence(_: Received, connection: Connection) -> None:
    """Read the request and never answer."""
    await connection.wire.gone(FOR_EVER)


@dataclass(slots=True, eq=False)
class Probes:
    """What the replica says of itself: plain values, or raw bytes for an odd answer."""

    health: int | bytes = 200
    models: list[str] | list[dict[str, Any]] | bytes = field(default_factory=lambda: ["m1"])
    gauges: dict[str, float] | bytes = field(default_factory=dict)
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    def answer(self, path: str) -> bytes:
        if path == "/health":
            if isinstance(self.health, bytes):
                return self.health
            return f"HTTP/1.1 {self.health} X\r\nContent-Length: 0\r\n\r\n".encode()
        if path == "/version":
            return sized(b'{"version":"0.0.1"}')
        if path == "/metrics":
            return self.gauges if isinstance(self.gauges, bytes) else sized(self._page())
        if isinstance(self.models, bytes):
            return self.models
        cards = [card if isinstance(card, dict) else {"id": card} for card in self.models]
        page = {"object": "list", "data": [{"object": "model", **card} for card in cards]}
        return sized(json.dumps(page).encode())

    def _page(self) -> bytes:
        assert isinstance(self.gauges, dict)
        values = {
            "vllm:num_requests_running": 0.0,
            "vllm:num_requests_waiting": 0.0,
            "vllm:kv_cache_usage_perc": 0.0,
            **self.gauges,
        }
        lines = [
            line
            for name, value in values.items()
            for line in (
                f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}",
                f'{name}{{engine="0",model_name="m1"}} {value}',
            )
        ]
        return "\n".join([*lines, ""]).encode()


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound


class FakeReplica:
    """A scripted replica on a free port of loopback.

    `requests` are those that the script saw (`probed` the others), in order of arrival. `settings` are
    those of this replica in the router's file.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = HOST,
        base_path: str = "",
        read_bodies: bool = True,
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        self.script: Script = script or reply(OK)
        self.read_bodies = read_bodies
        self.tls = tls
        self.probes = Probes()
        self.probes.answering.set()
        self.requests: list[Received] = []
        self.probed: list[Received] = []
        self.connections: list[Connection] = []
        self.faults: list[BaseException] = []
        self._tasks = TaskSet()
        self._server: asyncio.AbstractServer | None = None
        self._crowd: list[socket.socket] = []
        self._reserved = _bound(0)
        self.port: int = self._reserved.getsockname()[1]
        self.name = settings.get("name", f"{host}:{self.port}")
        self.base_path = base_path
        self.settings = {"url": f"{'https' if tls else 'http'}://{host}:{self.port}{base_path}", **settings}

    # Being there or not

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        assert self.faults == []

    async def listen(self) -> None:
        """Accept connections; before this, and after `refuse`, they are refused."""
        self._reserved.close()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Wire(self._connected), HOST, self.port, backlog=4096, ssl=self.tls
        )

    async def refuse(self) -> None:
        """Refuse new connections; those that exist go on."""
        if self._server is not None:
            self._server.close()
            await eventually(self._refuses, "connections are refused")
            self._server = None

    async def stop_answering_connects(self) -> None:
        """New connections hang in their handshake: nobody accepts, and the backlog is full."""
        await self.refuse()
        self._reserved = _bound(self.port)
        self._reserved.listen(0)
        loop = asyncio.get_running_loop()
        while True:
            peer = socket.socket()
            peer.setblocking(False)
            self._crowd.append(peer)
            try:
                async with asyncio.timeout(0.1):
                    await loop.sock_connect(peer, (HOST, self.port))
            except TimeoutError:
                return

    def _refuses(self) -> bool:
        with socket.socket() as peer:
            return peer.connect_ex((HOST, self.port)) != 0

    def reset_all(self) -> None:
        """RST on every connection, as when the process dies."""
        for connection in self.connections:
            if not connection.wire.closed:
                connection.wire.reset()

    async def stop(self) -> None:
        """End everything; what scripts raised is in `faults`."""
        await self.refuse()
        await self._tasks.close()
        for peer in [self._reserved, *self._crowd]:
            peer.close()
        for connection in self.connections:
            if not connection.wire.closed:
                connection.wire.transport.abort()
        await eventually(
            lambda: all(connection.wire.closed for connection in self.connections),
            "the replica's connections are closed",
        )

    # Looking back

    async def received(self, count: int = 1, deadline: float = DEADLINE) -> list[Received]:
        """Wait until `count` whole requests have come; all of them."""
        await eventually(
            lambda: len(self.complete) >= count,
            f"{count} requests at {self.name}, {len(self.requests)} begun so far",
            deadline=deadline,
        )
        return self.complete

    @property
    def complete(self) -> list[Received]:
        return [request for request in self.requests if request.complete]

    @property
    def used_connections(self) -> list[Connection]:
        """Those that carried more than probes, in order."""
        return [connection for connection in self.connections if connection.requests]

    # Serving

    def _connected(self, wire: Wire) -> None:
        connection = Connection(len(self.connections) + 1, wire)
        self.connections.append(connection)
        serving = self._tasks.start(self._serve(connection), f"connection {connection.number}")
        serving.add_done_callback(self._served)

    def _served(self, serving: asyncio.Task[None]) -> None:
        if not serving.cancelled() and (fault := serving.exception()) is not None:
            self.faults.append(fault)

    async def _serve(self, connection: Connection) -> None:
        try:
            while not connection.wire.closed:
                await self._serve_one(connection)
        except (PeerGone, OSError):
            connection.wire.close()

    async def _serve_one(self, connection: Connection) -> None:
        wire = connection.wire
        head = await read_head(wire, FOR_EVER)
        received = Received(head, connection, time.monotonic())
        path = received.target.partition("?")[0].removeprefix(self.base_path)
        if received.method == "GET" and path in PROBED:
            self.probed.append(received)
            await self.probes.answering.wait()
            await wire.send(self.probes.answer(path))
            return
        self.requests.append(received)
        connection.requests.append(received)
        if self.read_bodies:
            body = await read_body(wire, head, response=False, deadline=FOR_EVER)
            received.body, received.raw_body = body.entity, body.raw
            if body.ended == "dirty":
                raise PeerGone("the end of the body", body.raw, wire.ending)
            received.complete = True
        await self.script(received, connection)
