"""HTTP/1.1 as bytes: requests out of a stream of them, and heads of answers. No sockets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

MAX_HEAD_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 29

_HEAD_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_MAX_LINE_BYTES = 4096
_VARY = "vary: Origin\r\n"
_CHUNKED = "transfer-encoding: chunked\r\n"


class MalformedRequest(Exception):
    """The bytes are not a request; the connection cannot go on after the answer with `status`."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Header names are lower-case; of a repeated header the last counts."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    modern: bool
    query: str = ""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may serve another request: never with HTTP/1.0."""
        return self.modern and "close" not in self.headers.get("connection", "").lower()


class RequestReader:
    """Bytes in, whole requests out, in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: HttpRequest | None = None
        self._length: int | None = 0  # of the body; None when it comes in chunks
        self._chunks = bytearray()
        self._continued = False

    @property
    def buffered(self) -> int:
        """Bytes that came and belong to no request yet given out."""
        return len(self._buffer) + len(self._chunks)

    def feed(self, data: bytes) -> None:
        """Take what the connection received."""
        self._buffer += data

    def next_request(self) -> HttpRequest | None:
        """The next complete request, or None until more bytes come; raises MalformedRequest."""
        if self._head is None and not self._read_head():
            return None
        body = self._read_body()
        if body is None:
            return None
        head, self._head = self._head, None
        if head is None or not body:
            return head
        return replace(head, body=body)

    def wants_continue(self) -> bool:
        """True once for a request whose sender waits for `100 Continue` before the body."""
        head = self._head
        if head is None or self._continued or not head.modern:
            return False
        self._continued = True
        return head.headers.get("expect", "").lower() == "100-continue"

    def _read_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise MalformedRequest(431, "the head is too large")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        method, _, rest = first.partition(" ")
        target, _, version = rest.partition(" ")
        if not method.isalpha() or not target or version not in ("HTTP/1.1", "HTTP/1.0"):
            raise MalformedRequest(400, "not an HTTP/1.1 request")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise MalformedRequest(400, "a header line is malformed")
            name, value = name.lower(), value.strip()
            if name == "content-length" and headers.get(name, value) != value:
                raise MalformedRequest(400, "content-length is ambiguous")
            headers[name] = value
        path, _, query = target.partition("?")
        self._head = HttpRequest(method, path, headers, b"", version == "HTTP/1.1", query)
        self._length = _body_length(headers)
        self._continued = False
        return True

    def _read_body(self) -> bytes | None:
        if self._length is None:
            return self._read_chunks()
        if len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return body

    def _read_chunks(self) -> bytes | None:
        buffer = self._buffer
        while (end := buffer.find(_LINE_END, 0, _MAX_LINE_BYTES)) >= 0:
            size = _chunk_size(bytes(buffer[:end]))
            if not size:
                return self._read_trailer(end)
            if len(self._chunks) + size > MAX_BODY_BYTES:
                raise MalformedRequest(413, "the body is too large")
            after = end + 2 + size
            if len(buffer) < after + 2:
                return None
            if buffer[after : after + 2] != _LINE_END:
                raise MalformedRequest(400, "a chunk is malformed")
            self._chunks += buffer[end + 2 : after]
            del buffer[: after + 2]
        if len(buffer) >= _MAX_LINE_BYTES:
            raise MalformedRequest(400, "a chunk is malformed")
        return None

    def _read_trailer(self, end: int) -> bytes | None:
        """Skip the trailer, which follows the line of the last chunk that stops at `end`."""
        stop = self._buffer.find(_HEAD_END, end)
        if stop < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise MalformedRequest(431, "the trailer is too large")
            return None
        del self._buffer[: stop + 4]
        body = bytes(self._chunks)
        self._chunks.clear()
        return body


def _body_length(headers: Mapping[str, str]) -> int | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length", "0")
    if coding is not None:
        if coding.lower() != "chunked" or "content-length" in headers:
            raise MalformedRequest(400, "the body's framing is ambiguous")
        return None
    if not length.isascii() or not length.isdigit():
        raise MalformedRequest(400, "content-length is malformed")
    if int(length) > MAX_BODY_BYTES:
        raise MalformedRequest(413, "the body is too large")
    return int(length)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise MalformedRequest(400, "a chunk is malformed")
    return int(digits, 16)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `allow` goes with 405, `retry_after` (seconds) with 429 and 503."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    allow: str = ""
    retry_after: str = ""

    def encode(self, *, now: float, keep_alive: bool, head_only: bool = False) -> bytes:
        """The bytes to send; `now` is Unix time. `head_only` answers a HEAD request."""
        allow = f"allow: {self.allow}\r\n" if self.allow else ""
        kind = f"content-type: {self.content_type}\r\n" if self.body else ""
        wait = f"retry-after: {self.retry_after}\r\n" if self.retry_after else ""
        fields = f"{allow}{wait}content-length: {len(self.body)}\r\n{kind}{_VARY}"
        head = _head(self.status, fields, now, keep_alive)
        return head if head_only else head + self.body


def stream_head(*, now: float, keep_alive: bool, chunked: bool) -> bytes:
    """The head of an SSE answer; one that is not chunked ends when the connection closes."""
    fields = f"content-type: text/event-stream; charset=utf-8\r\n{_VARY}"
    return _head(200, fields + _CHUNKED if chunked else fields, now, keep_alive)


def _head(status: int, fields: str, now: float, keep_alive: bool) -> bytes:
    close = "" if keep_alive else "connection: close\r\n"
    return (
        f"HTTP/1.1 {status} {_phrase(status)}\r\ndate: {_date(int(now))}\r\n"
        f"server: replicarouter-engine\r\n{fields}{close}\r\n"
    ).encode("latin-1")


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


@lru_cache(maxsize=64)
def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
