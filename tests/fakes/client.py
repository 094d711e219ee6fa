"""A raw HTTP client: sends the bytes it is given, keeps a connection, leaves as rudely as asked."""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from tests.fakes.message import Body, Head, read_body, read_head
from tests.fakes.wire import DEADLINE, LINGER_NOT_AT_ALL, Ending, Wire

HOST = "127.0.0.1"

ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
"""Of an error object; the other statuses go by their hundred."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response as it came; `informational` are the 1xx heads before it."""

    head: Head
    body: Body
    informational: list[Head] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def ended(self) -> str:
        return self.body.ended

    def json(self) -> Any:
        return json.loads(self.body.entity)

    def refused(self, status: int, code: str) -> dict[str, Any]:
        """Assert that this is the router's own error in OpenAI's shape; the error object."""
        assert self.status == status, (self.head.raw, self.body.raw[:500])
        assert (self.head.get("content-type") or "").startswith("application/json"), self.head.raw
        assert self.head.get("x-request-id"), self.head.raw
        assert self.head.start.startswith("HTTP/1.1 "), self.head.start
        assert self.ended == "clean"
        (error,) = self.json().values()
        assert set(error) == {"message", "type", "param", "code"}, error
        assert error["code"] == code, error
        assert error["type"] == ERROR_TYPES.get(
            status, "server_error" if status >= 500 else "invalid_request_error"
        )
        assert isinstance(error["message"], str), error
        assert error["message"], error
        return dict(error)


class Client:
    """One connection to a server on loopback."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    async def connect(
        cls, port: int, *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
    ) -> Self:
        """Connect; `receive_buffer` (bytes) keeps the operating system from taking much for us."""
        async with asyncio.timeout(DEADLINE):
            _, wire = await asyncio.get_running_loop().create_connection(Wire, HOST, port, ssl=tls)
        if receive_buffer is not None:
            wire.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer
            )
        return cls(wire)

    async def send(self, raw: bytes) -> None:
        await self.wire.send(raw)

    async def head(self, deadline: float = DEADLINE) -> Head:
        """The next head, 1xx included."""
        return await read_head(self.wire, deadline)

    async def body(self, head: Head, deadline: float = DEADLINE) -> Body:
        return await read_body(self.wire, head, response=True, deadline=deadline)

    async def answer(self, deadline: float = DEADLINE) -> Answer:
        """The next final response, whole or cut."""
        informational = []
        head = await self.head(deadline)
        while head.status < 200:
            informational.append(head)
            head = await self.head(deadline)
        return Answer(head, await self.body(head, deadline), informational)

    async def ask(self, raw: bytes, deadline: float = DEADLINE) -> Answer:
        await self.send(raw)
        return await self.answer(deadline)

    async def gone(self, deadline: float = DEADLINE) -> Ending:
        """Wait for the server to end the connection; how it did."""
        return await self.wire.gone(deadline)

    async def closed(self) -> None:
        """End the connection if it still stands, and wait until nothing is left of it."""
        if not self.wire.closed:
            self.wire.transport.abort()
            await self.wire.until(lambda: self.wire.closed, "our own end")

    def leave(self, how: Ending = "fin") -> None:
        """Close for good."""
        if how == "fin":
            self.wire.close()
        else:
            self.wire.reset()


class AbruptClient:
    """A client outside the event loop: what it does has happened when the call returns.

    Two things done in one turn of the loop thus reach the router in the same turn, in this order.
    """

    def __init__(self, port: int, raw: bytes) -> None:
        self._socket = socket.create_connection((HOST, port), DEADLINE)
        self._socket.sendall(raw)

    def end_sending(self) -> None:
        """Close this side alone."""
        self._socket.shutdown(socket.SHUT_WR)

    def read_to_end(self) -> bytes:
        """All that comes until the other side closes; for when that has happened."""
        data = b""
        while True:
            try:
                more = self._socket.recv(65536)
            except ConnectionResetError:
                return data
            if not more:
                return data
            data += more

    def leave(self, how: Ending = "fin") -> None:
        if how == "rst":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT_AT_ALL)
        self._socket.close()


class Connect(Protocol):
    """Connect to a port of loopback, see `Client.connect`."""

    async def __call__(self, port: int, *, receive_buffer: int | None = None) -> Client: ...


def request(
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    chunked: bool = False,
) -> bytes:
    """The bytes of one request, framed by length or as one chunk; `headers` override."""
    fields = {"Host": HOST}
    if body is not None:
        fields["Content-Type"] = "application/json"
        if chunked:
            fields["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            fields["Content-Length"] = str(len(body))
    fields |= dict(headers or {})
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def chat_body(*, stream: bool = True, model: str = "m1", **extra: Any) -> bytes:
    """The body of a small chat request."""
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": stream,
        **extra,
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def chat(
    *,
    stream: bool = True,
    model: str = "m1",
    headers: Mapping[str, str] | None = None,
    **extra: Any,
) -> bytes:
    """The bytes of a small chat request."""
    body = chat_body(stream=stream, model=model, **extra)
    return request("POST", "/v1/chat/completions", body, headers)
