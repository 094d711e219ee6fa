"""A small engine on a real port: what it says of itself, and what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest_asyncio
from aiohttp import web

from replicarouter.fleet.fetch import Client
from replicarouter.fleet.one_step import OneStepConnector


@dataclass(slots=True, eq=False)
class Engine:
    """Answers each path with a status and the pieces of a body, sent one by one; `url` once it listens.

    While `held` is set, an answer waits for it behind its first piece; `silent_at` is a path without an
    answer. `asked` are the paths and keys.
    """

    answers: dict[str, tuple[int, list[bytes]]] = field(default_factory=dict)
    held: asyncio.Event | None = None
    silent: bool = False
    silent_at: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    running: web.AppRunner | None = None
    _peers: list[object] = field(default_factory=list)

    def says(self, path: str, *pieces: bytes, status: int = 200) -> None:
        self.answers[path] = (status, list(pieces))

    async def listen(self, port: int = 0) -> None:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        self.running = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self.running.setup()
        await web.TCPSite(self.running, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self.running.addresses[0][1]}"

    async def stop(self) -> None:
        """Refuse connections from now on."""
        if self.running is not None:
            await self.running.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, request.headers.get("Authorization")))
        if request.protocol not in self._peers:
            self._peers.append(request.protocol)
        if self.silent or request.path == self.silent_at:
            await asyncio.Event().wait()
        status, pieces = self.answers.get(request.path, (404, []))
        response = web.StreamResponse(status=status)
        response.content_length = sum(map(len, pieces))
        if status in {301, 302}:
            response.headers["Location"] = "/elsewhere"
        await response.prepare(request)
        for number, piece in enumerate(pieces):
            if number and self.held is not None:
                await self.held.wait()
            await response.write(piece)
        return response

    @property
    def connections(self) -> int:
        """On how many connections it was asked."""
        return len(self._peers)

    def times(self, path: str) -> int:
        """How often `path` was asked for."""
        return [asked for asked, _ in self.asked].count(path)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    """A healthy engine that serves m1."""
    one = Engine()
    one.says("/health", b"")
    one.says("/v1/models", b'{"object":"list","data":[{"id":"m1"}]}')
    await one.listen()
    yield one
    await one.stop()


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """A client as the router makes it for probes."""
    one = Client(OneStepConnector(limit=0, force_close=True))
    yield one
    await one.close()
