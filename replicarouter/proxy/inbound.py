"""A client's request as it came. Clients send the same head again and again, but for the length of the body:
what was read in it once is kept, and aiohttp's parser is asked only about heads that are new."""

from typing import TYPE_CHECKING, Any

from aiohttp import StreamReader, hdrs
from multidict import CIMultiDict, CIMultiDictProxy, istr

from replicarouter.protocol.endpoints import Endpoint, Endpoints
from replicarouter.protocol.headers import crossing_fields

if TYPE_CHECKING:
    from replicarouter.proxy.aiohttp_internals import ClientConnection, RequestHead


class Ahead(list[Any]):
    """Requests that came before the one before them was answered. Of a deque, as aiohttp has it, an empty one
    takes 760 bytes of every connection."""

    def popleft(self) -> Any:
        """Take the first."""
        return self.pop(0)


REMEMBERED_HEADS = 256
LONGEST_REMEMBERED = 4096
"""Heads that are kept, and bytes of the longest: at most a few MB in all."""

_LENGTHS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
"""How clients write it; a head that spells it otherwise is parsed every time."""

_MOST_DIGITS = 9


class Heading:
    """A parsed head, and what follows from it. One object serves all requests that have the same head; then
    its message tells the body's length of the first of them."""

    __slots__ = (
        "_crossing",
        "_endpoint",
        "_picked",
        "_starts",
        "encoded",
        "keep_alive",
        "message",
        "modern",
        "path",
        "query",
        "searched",
    )

    def __init__(self, message: "RequestHead") -> None:
        self.message = message
        self.path, _, self.query = message.path.partition("?")
        self.modern = message.version >= (1, 1)
        self.keep_alive = self.modern and not message.should_close
        self.encoded = message.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity"
        self.searched = False
        self._endpoint: Endpoint | None = None
        self._picked: CIMultiDict[str] | None = None
        self._crossing: dict[tuple[bool, bool, frozenset[bytes]], bytes] = {}
        self._starts: dict[str, bytes] = {}

    def endpoint(self, table: Endpoints) -> Endpoint | None:
        """Its row in the table, which is the same for the life of the process."""
        if not self.searched:
            self.searched = True
            self._endpoint = table.find(self.path)
        return self._endpoint

    def pick(self, names: tuple[istr, ...]) -> CIMultiDict[str]:
        """Its fields of these names, which are the same for the life of the process."""
        picked = self._picked
        if picked is None:
            headers = self.message.headers
            picked = CIMultiDict((name, value) for name in names for value in headers.getall(name, ()))
            self._picked = picked
        return picked

    def start(self, base_path: str, target: str = "") -> bytes:
        """The request line for a replica whose paths begin with `base_path`; `target` stands in for what the
        client has asked for, if it is given."""
        if target:
            return self._line(base_path + target)
        line = self._starts.get(base_path)
        if line is None:
            line = self._starts[base_path] = self._line(base_path + self.message.path)
        return line

    def crossing(self, replace_credentials: bool, forwards: bool, replaced: frozenset[bytes]) -> bytes:
        """The field lines that go on to the replica, as `crossing_fields` has them."""
        terms = (replace_credentials, forwards, replaced)
        lines = self._crossing.get(terms)
        if lines is None:
            message = self.message
            fields = crossing_fields(
                message.raw_headers,
                message.headers.getall(hdrs.CONNECTION, ()),
                replace_credentials=replace_credentials,
                forwards=forwards,
                replaced=replaced,
            )
            lines = self._crossing[terms] = b"".join(fields)
        return lines

    def _line(self, target: str) -> bytes:
        return f"{self.message.method} {target} HTTP/1.1\r\n".encode("utf-8", "surrogateescape")

    @property
    def repeatable(self) -> bool:
        """Whether a request with the same bytes for its head and a whole body behind it means the same."""
        message = self.message
        plain = not (message.chunked or message.upgrade or message.compression)
        return self.keep_alive and plain and hdrs.EXPECT not in message.headers


class WholeBody:
    """A body that came with its head, as far as it is asked what a `StreamReader` is asked."""

    __slots__ = ("_data", "total_bytes")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.total_bytes = len(data)

    def is_eof(self) -> bool:
        """Nothing more will come."""
        return True

    def at_eof(self) -> bool:
        """Whether all of it was read."""
        return not self._data

    def exception(self) -> BaseException | None:
        """Nothing has gone wrong."""
        return None

    def read_nowait(self) -> bytes:
        """What was not read yet."""
        data, self._data = self._data, b""
        return data

    async def readany(self) -> bytes:
        """The same."""
        return self.read_nowait()


class InboundRequest:
    """A client's request: its head as parsed, its body as a stream."""

    __slots__ = ("client", "content", "heading")

    def __init__(
        self, heading: Heading, content: StreamReader | WholeBody, client: "ClientConnection"
    ) -> None:
        self.heading = heading
        self.content = content
        self.client = client

    @property
    def message(self) -> "RequestHead":
        """Its head, with the length of its own body."""
        message, content = self.heading.message, self.content
        if isinstance(content, StreamReader):
            return message
        length = str(content.total_bytes)
        if message.headers[hdrs.CONTENT_LENGTH] == length:
            return message
        headers = CIMultiDict(message.headers)
        headers[hdrs.CONTENT_LENGTH] = length
        raw = [
            (name, length.encode() if name.lower() == b"content-length" else value)
            for name, value in message.raw_headers
        ]
        return type(message)(
            message.method,
            message.path,
            message.version,
            CIMultiDictProxy(headers),
            tuple(raw),
            message.should_close,
            message.compression,
            message.upgrade,
            message.chunked,
            message.url,
        )

    @property
    def modern(self) -> bool:
        """Whether the client speaks HTTP/1.1."""
        return self.heading.modern

    def read_sparingly(self) -> None:
        """Let little of the body wait unread: it may have to wait long for its replica."""
        content = self.content
        if isinstance(content, StreamReader):
            self.client.read_sparingly(content)


class KnownHeads:
    """The heads that clients repeat, by their bytes without the digits of the length, whatever connection
    they come on: one that is not among them costs a look, one that is spares its parsing.

    A head is learned when it comes twice in a row, on one connection or of all that were parsed, so that
    those that are never sent again (with a request id, say) take nobody's place. The oldest is forgotten for
    the newest. `latest` is the hash of the last one that was parsed.
    """

    __slots__ = ("_known", "latest")

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], KnownHead] = {}
        self.latest = 0

    def __len__(self) -> int:
        return len(self._known)

    def take_apart(self, data: bytes) -> tuple[bytes, bytes] | None:
        """What of a head stands before the digits of the length and what behind them, in one read that holds
        a whole request and nothing else; None for any other read."""
        end = data.find(b"\r\n\r\n", 0, LONGEST_REMEMBERED) + 4
        for name in _LENGTHS:
            at = data.find(name, 0, end)
            if at >= 0:
                at += len(name)
                after = data.find(b"\r", at, end)
                return (data[:at], data[after:end]) if _says(data[at:after], len(data) - end) else None
        return None

    def find(self, parts: tuple[bytes, bytes]) -> "KnownHead | None":
        """The head of these parts, if it is known."""
        return self._known.get(parts)

    def note(self, parts: tuple[bytes, bytes], message: "RequestHead", before: int) -> int:
        """A whole request was parsed whose head is of these parts: remember it if it comes twice in a row and
        says nothing of the body but its length. `before` is what this returned for the last one on the same
        connection."""
        name = hash(parts)
        repeated, self.latest = name in (before, self.latest), name
        heading = Heading(message)
        if repeated and heading.repeatable:
            while len(self._known) >= REMEMBERED_HEADS:
                del self._known[next(iter(self._known))]
            self._known[parts] = KnownHead(*parts, heading)
        return name


class KnownHead:
    """One of them: what stands before the digits of the length and what behind them, and what it says."""

    __slots__ = ("_after", "_at", "_before", "heading")

    def __init__(self, before: bytes, after: bytes, heading: Heading) -> None:
        self._before = before
        self._after = after
        self._at = len(before)
        self.heading = heading

    def body_in(self, data: bytes) -> bytes | None:
        """The body of a request with this head, if one read is just that."""
        if not data.startswith(self._before):
            return None
        behind = self._after
        at = data.find(b"\r", self._at)
        end = at + len(behind)
        if data.startswith(behind, at) and _says(data[self._at : at], len(data) - end):
            return data[end:]
        return None


class _NoHead(KnownHead):
    """Of a connection that has not sent any of them."""

    def __init__(self) -> None:
        """It stands for no head."""

    def body_in(self, data: bytes) -> bytes | None:  # noqa: ARG002
        """Nothing begins with it."""
        return None


NO_HEAD: KnownHead = _NoHead()


def _says(digits: bytes, length: int) -> bool:
    """Whether this is that number, and as plain as the parser has seen it: else the parser decides."""
    return digits.isdigit() and len(digits) <= _MOST_DIGITS and int(digits) == length
