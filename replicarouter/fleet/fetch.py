"""Asking replicas about themselves: small GETs on connections apart from those that requests use. Each is
asked every second or two for ever, so what can be known of a question beforehand is. `Visit` leans on names
that aiohttp does not document; `tests/fleet/test_fetch.py` fails when a release changes any of them.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from yarl import URL

NO_LIMIT = aiohttp.ClientTimeout(total=None)
"""Whoever asks has a time limit of its own around it."""

SWITCHING_PROTOCOLS = 101
OK = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where to ask one replica: what the connector wants to know, and what is the same in every question."""

    template: ClientRequest
    path: str
    lines: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `body` is empty unless it was asked for and the status is 200."""

    status: int
    body: bytes = b""


class Client:
    """Asks. Must be made on the running loop; `close` it in the end."""

    def __init__(self, connector: aiohttp.TCPConnector) -> None:
        self._connector = connector

    def place(self, url: str) -> Place:
        """Where to ask what stands at this base URL."""
        template = ClientRequest(
            "GET",
            URL(url),
            # A page is larger so, but nobody has to pack and unpack it.
            headers={"Accept-Encoding": "identity"},
            loop=asyncio.get_running_loop(),
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in template.headers.items())
        return Place(template, template.url.raw_path.rstrip("/"), lines)

    def visit(self, place: Place) -> "Visit":
        """Ask one replica, several questions on one connection: a context."""
        return Visit(self._connector, place)

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()


class Visit:
    """One visit to a replica. In the end its connection goes to the pool, where the connector keeps one."""

    def __init__(self, connector: aiohttp.TCPConnector, place: Place) -> None:
        self._connector = connector
        self._place = place
        self._connection: Connection | None = None

    def __enter__(self) -> "Visit":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection = self._take_connection()
        if connection is not None:
            connection.release()

    async def ask(self, path: str, *, most: int = 0, key: str = "") -> Answer:
        """Ask for a path below the replica's URL, with `key` as a bearer token if there is one.

        Of the body of a 200 no more than about `most` bytes are read. Raises `aiohttp.ClientError`, and
        `OSError` or `ValueError` where aiohttp does. As aiohttp's sessions do, it asks once more when the
        connection ends before an answer has begun.
        """
        own = f"Authorization: Bearer {key}\r\n" if key else ""
        head = f"GET {self._place.path}{path} HTTP/1.1\r\n{self._place.lines}{own}\r\n".encode()
        try:
            return await self._ask(head, most)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            return await self._ask(head, most)

    async def _ask(self, head: bytes, most: int) -> Answer:
        connection = self._take_connection()
        if connection is None:
            connection = await self._connector.connect(self._place.template, [], NO_LIMIT)
        kept = False
        try:
            status, content = await self._begin(connection, head)
            body = await read_whole(content, most) if most and status == OK else b""
            # Bytes on their way, as those of a body that nobody wants, would be taken for the next answer.
            kept = content.is_eof()
        finally:
            if kept:
                self._connection = connection
            else:
                connection.close()
        return Answer(status, body)

    async def _begin(self, connection: Connection, head: bytes) -> tuple[int, StreamReader]:
        """Send the question, and wait for the head of the answer."""
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True)
        protocol.transport.write(head)
        while True:
            try:
                message, content = await protocol.read()
            except HttpProcessingError as error:
                info = self._place.template.request_info
                raise aiohttp.ClientResponseError(
                    info, (), status=error.code, message=error.message
                ) from error
            if not 100 <= message.code < OK or message.code == SWITCHING_PROTOCOLS:
                return message.code, content

    def _take_connection(self) -> Connection | None:
        """The connection of the last answer, if it can take one more question."""
        connection, self._connection = self._connection, None
        protocol = connection.protocol if connection is not None else None
        if connection is not None and (
            protocol is None or protocol.should_close or not protocol.is_connected()
        ):
            connection.close()
            return None
        return connection


async def read_whole(content: StreamReader, most: int) -> bytes:
    """A body as far as it goes, but no further than about `most` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in content.iter_any():
        parts.append(part)
        size += len(part)
        if size >= most:
            break
    return b"".join(parts)
