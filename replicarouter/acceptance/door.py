"""One address that is asked: the router's main port, its admin port, or a replica."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from replicarouter.acceptance.errors import NoAnswer
from replicarouter.acceptance.events import Event, EventReader
from replicarouter.acceptance.reply import Reply, Streamed
from replicarouter.clock import Clock

CONNECT_TIMEOUT = 10.0
"""Seconds to connect; how long an answer may take is the check's matter."""

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of an answer that are read."""

_UNAUTHORIZED = 401


@dataclass(slots=True)
class Meter:
    """What has been asked of the fleet so far: requests that had something generated, and their tokens."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Door:
    """Asks one base URL. `name` is what people are told of it; `key` goes with every request. Without one,
    `spare` is the key from when on a request has been answered 401."""

    def __init__(
        self,
        name: str,
        url: str,
        session: aiohttp.ClientSession,
        clock: Clock,
        *,
        key: str = "",
        meter: Meter | None = None,
    ) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.clock = clock
        self.meter = meter or Meter()
        self._session = session
        self.key = key
        self.spare = ""

    def __repr__(self) -> str:
        return f"Door({self.name})"

    async def get(self, path: str) -> Reply:
        """Ask for a page; raises `NoAnswer`."""
        async with self._open("GET", path) as answer:
            return await self._whole(answer)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Send JSON; raises `NoAnswer`."""
        async with self._open("POST", path, body, headers) as answer:
            return await self._whole(answer)

    async def stream(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Streamed:
        """Send JSON and read the events of the answer to its end. A refusal has no events, and a stream
        that is cut says so in its faults; raises `NoAnswer` when there is not even a head."""
        asked_at = self.clock()
        async with self._open("POST", path, body, headers) as answer:
            if answer.status != 200:
                return Streamed(await self._whole(answer), asked_at, ended_at=self.clock())
            return await self._events(answer, asked_at)

    @asynccontextmanager
    async def streaming(self, path: str, body: bytes) -> AsyncIterator[tuple[Reply, AsyncIterator[Event]]]:
        """A stream that the caller may leave at any time: leaving closes the connection, as a client does
        that goes away. Raises `NoAnswer`, and `Refused` for another status than 200."""
        async with self._open("POST", path, body) as answer:
            if answer.status != 200:
                (await self._whole(answer)).must_be_ok()
            yield self._head(answer, b""), self._as_they_come(answer)
            answer.close()

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of an answer, whose body can be read; raises `NoAnswer`, also when that breaks off."""
        key = self.key
        try:
            async with self._sent(method, path, body, headers or {}) as answer:
                if answer.status != _UNAUTHORIZED or key or not self.spare:
                    yield answer
                    return
            self.key = self.spare
            async with self._sent(method, path, body, headers or {}) as answer:
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{self.name}: {_said(error)}") from None

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        json = {} if body is None else {"Content-Type": "application/json"}
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return self._session.request(
            method, self.url + path, data=body, headers={**key, **json, **headers}, allow_redirects=False
        )

    async def _whole(self, answer: aiohttp.ClientResponse) -> Reply:
        parts = []
        size = 0
        async for part in answer.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > LARGEST_BODY:
                raise NoAnswer(f"{self.name}: an answer of more than {LARGEST_BODY} bytes")
        return self._head(answer, b"".join(parts))

    async def _events(self, answer: aiohttp.ClientResponse, asked_at: float) -> Streamed:
        streamed = Streamed(self._head(answer, b""), asked_at)
        reader = EventReader(streamed.faults)
        try:
            async for part in answer.content.iter_any():
                streamed.events += reader.feed(part, self.clock())
            reader.end()
        except (aiohttp.ClientError, OSError):
            streamed.faults.append("it was cut before its end")
        streamed.ended_at = self.clock()
        if not streamed.reply.headers.get("content-type", "").startswith("text/event-stream"):
            streamed.faults.append("its content type is not text/event-stream")
        return streamed

    async def _as_they_come(self, answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
        reader = EventReader()
        async for part in answer.content.iter_any():
            for event in reader.feed(part, self.clock()):
                yield event

    def _head(self, answer: aiohttp.ClientResponse, body: bytes) -> Reply:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(self.name, answer.status, headers, body)


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client for all doors: without proxies, cookies, or a limit of connections.

    Each request has a connection of its own: an engine may close an idle one just as it is used again, and
    whose fault that is cannot be told from here.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=False,
    ) as session:
        yield session


def _said(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, asyncio.TimeoutError):
        return "does not let us connect in time"
    return f"the connection fails ({type(error).__name__})"
