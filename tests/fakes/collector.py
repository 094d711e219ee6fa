"""Collectors of spans: a real HTTP server that reads OTLP, and can be told to refuse or to hang; and one
that answers any bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from replicarouter.tasks import TaskSet
from tests.fakes.client import HOST
from tests.fakes.wire import eventually


@dataclass(frozen=True, slots=True)
class SpanSeen:
    """One span as it arrived; times are seconds of the wall clock."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    begin: float
    end: float
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(slots=True)
class FakeCollector:
    """`status`: what it answers. `hangs`: it answers nothing at all."""

    status: int = 200
    hangs: bool = False
    spans: list[SpanSeen] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def trace(self, count: int) -> dict[str, list[SpanSeen]]:
        """Wait for so many spans; all that have come, by name."""
        await eventually(lambda: len(self.spans) >= count, f"{count} spans arrive")
        by_name: dict[str, list[SpanSeen]] = {}
        for span in self.spans:
            by_name.setdefault(span.name, []).append(span)
        return by_name

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.hangs:
            await asyncio.sleep(3600)
        if self.status == 200:
            message = ExportTraceServiceRequest.FromString(body)
            for group in message.resource_spans:
                resource = {one.key: _value(one.value) for one in group.resource.attributes}
                for scope in group.scope_spans:
                    self.spans += [_seen(span, resource) for span in scope.spans]
        return web.Response(status=self.status)


def _seen(span: trace_pb2.Span, resource: dict[str, Any]) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        begin=span.start_time_unix_nano / 1e9,
        end=span.end_time_unix_nano / 1e9,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes={one.key: _value(one.value) for one in span.attributes},
        resource=resource,
    )


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


Answer = Callable[[], AsyncIterator[bytes]]
"""What to answer one request, piece by piece."""


@dataclass(slots=True)
class RawCollector:
    """Answers each request with the bytes of its `answer`; how many came, and how many bytes were sent."""

    answer: Answer
    requests: int = 0
    connections: int = 0
    sent: int = 0
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r")[0]))
                    self.requests += 1
                    async for piece in self.answer():
                        writer.write(piece)
                        await writer.drain()
                        self.sent += len(piece)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def raw_collector(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawCollector]:
    """It listens until the end of the context, and then hangs up on everybody."""
    collector = RawCollector(answer)
    tasks = TaskSet()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.start(collector.serve(reader, writer), "collector")

    server = await asyncio.start_server(connected, HOST, 0, ssl=tls)
    collector.port = server.sockets[0].getsockname()[1]
    try:
        yield collector
    finally:
        server.close()
        await tasks.close()
        await server.wait_closed()


def answering(*pieces: bytes, again: float | None = None) -> Answer:
    """All of `pieces`; the last of them over and over when `again` says after how many seconds."""

    async def answer() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        while again is not None:
            await asyncio.sleep(again)
            yield pieces[-1]

    return answer
