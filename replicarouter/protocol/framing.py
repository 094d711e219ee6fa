"""Where a body ends. The walkers look at bytes that pass on unchanged; they never copy or hold them.

Each has `feed(data) -> int`: the index just past the end of the body in `data`, or -1 while it goes
on. Broken framing raises `BadFraming`.
"""

import re
from typing import Protocol

MAX_LINE = 4096
"""Longest chunk-size line with its extensions, bytes."""

MAX_TRAILERS = 16384
"""Most bytes of trailer fields."""

_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*")
REMEMBERED_LINE = 8
"""Longest size line that is worth remembering: one without extensions."""

REMEMBERED_LINES = 4096

LINE = 5
"""Bytes at the beginning of a chunk that hold its size line, line end included, where it is a usual one: of a
token's event it has two or three digits."""

_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n\0]*)?")


def chunk(data: bytes) -> bytes:
    """Frame `data` as one chunk; no data makes the last one, with no trailers."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class BadFraming(Exception):
    """The bytes cannot be a body framed as its head said."""


class Framing(Protocol):
    """What the relay asks of a walker."""

    ends_with_connection: bool
    """Whether the end of the connection is the regular end of the body."""

    def feed(self, data: bytes) -> int:
        """Walk over `data`; the index just past the end of the body, or -1."""

    def at_boundary(self) -> bool:
        """Whether bytes of our own could be put in here without breaking the framing."""


class NoBody:
    """An answer without a body (204, 304)."""

    ends_with_connection = False

    def feed(self, data: bytes) -> int:  # noqa: ARG002
        """Nothing belongs to it."""
        return 0

    def at_boundary(self) -> bool:
        """There is no body to put anything into."""
        return False


class Length:
    """A body of a declared number of bytes."""

    __slots__ = ("_left",)
    ends_with_connection = False

    def __init__(self, length: int) -> None:
        self._left = length

    def feed(self, data: bytes) -> int:
        """Count down."""
        size = len(data)
        if size < self._left:
            self._left -= size
            return -1
        end, self._left = self._left, 0
        return end

    def at_boundary(self) -> bool:
        """Every byte is spoken for."""
        return False


class UntilClose:
    """A body that ends with its connection."""

    __slots__ = ()
    ends_with_connection = True

    def feed(self, data: bytes) -> int:  # noqa: ARG002
        """Goes on until the connection ends."""
        return -1

    def at_boundary(self) -> bool:
        """Bytes may be added anywhere."""
        return True


class _Sizes(dict[bytes, int]):
    """Size line → chunk size. Streams repeat their sizes; looking one up costs a tenth of parsing it."""

    def __missing__(self, line: bytes) -> int:
        match = _SIZE_LINE.fullmatch(line)
        if match is None or len(line) > MAX_LINE:
            raise BadFraming("malformed chunk size")
        size = int(match[1], 16)
        if len(line) <= REMEMBERED_LINE and len(self) < REMEMBERED_LINES:
            self[line] = size
        return size


_SIZES = _Sizes()

SMALL, LARGE = 64, 16384
"""Bytes of a chunk as tokens come: more than a comment has, and at most as many as anybody looks at."""

WHOLE: dict[bytes, int] = {}
"""First bytes of such a chunk, as many as `LINE` → bytes of the whole of it. A read that is one chunk is told
by its beginning, its length and its end."""


def _check_half_end(data: bytes) -> None:
    """Of a chunk's line end only the second half is still to come: the first must be there."""
    if not data.endswith(b"\r"):
        raise BadFraming("chunk data longer than its size")


def _ends_chunk(data: bytes, at: int) -> bool:
    """Whether the line end behind a chunk's data is complete at `at`; the last read may hold its half."""
    return data.startswith(b"\n") if at == 1 else data.startswith(b"\r\n", at - 2)


def _remember(data: bytes, start: int, end: int) -> None:
    """`data` ends with a chunk. It is nothing else if the size line of it, which ends at `end`, begins it."""
    if not start and end + 2 <= LINE and SMALL < len(data) <= LARGE and len(WHOLE) < REMEMBERED_LINES:
        WHOLE[data[:LINE]] = len(data)


class Chunked:
    """A chunked body (RFC 9112 section 7.1), passed on with its framing, extensions and trailers.

    `between`: the last byte seen ended a chunk.
    """

    __slots__ = ("_left", "_line", "_trailing", "between")
    ends_with_connection = False

    def __init__(self) -> None:
        self.between = True
        self._left = 0  # bytes of the current chunk still to come, with its final CRLF
        self._line = b""  # a size line or trailer section that is not complete yet
        self._trailing = False

    def feed(self, data: bytes) -> int:
        """See whether it is exactly one chunk, as the common read is; walk over it if not."""
        if self.between and WHOLE.get(data[:LINE]) == len(data) and data[-2:] == b"\r\n":
            return -1
        end = self._walk(data)
        self.between = not (self._left or self._line or self._trailing)
        return end

    def _walk(self, data: bytes) -> int:
        """Walk from size line to size line."""
        at = self._left
        if self._line or self._trailing:
            at = self._resume(data)
            if self._trailing or at < 0:
                return at
        size = len(data)
        start = end = -1  # of the last size line
        while at <= size:
            if at == size and data.endswith(b"\r\n"):
                _remember(data, start, end)
                self._left = 0
                return -1
            if at and not _ends_chunk(data, at):
                raise BadFraming("chunk data longer than its size")
            self._left = 0
            start, end = at, data.find(b"\r\n", at)
            if end < 0:
                self._keep(data[at:], MAX_LINE)
                return -1
            length = _SIZES[data[at:end]]
            if not length:
                self._trailing = True
                return self._trailers(data, end + 2)
            at = end + 4 + length
        self._left = at - size
        if self._left == 1:
            _check_half_end(data)
        return -1

    def at_boundary(self) -> bool:
        """Whether the last byte seen ended a chunk."""
        return self.between

    def _resume(self, data: bytes) -> int:
        """Finish the line that the last read cut: the index where the next chunk's data ends, or -1."""
        if self._trailing:
            return self._trailers(data, 0)
        line, self._line = self._line, b""
        whole = line + data
        end = whole.find(b"\r\n")
        if end < 0:
            self._keep(whole, MAX_LINE)
            return -1
        length = _SIZES[whole[:end]]
        after = end + 2 - len(line)
        if not length:
            self._trailing = True
            return self._trailers(data, after)
        return after + length + 2

    def _trailers(self, data: bytes, at: int) -> int:
        """Walk the trailer section: the index past its empty line, or -1."""
        before = self._line
        if not before and data.startswith(b"\r\n", at):
            return at + 2  # There are none.
        section = before + data[at:]
        end = 0 if section.startswith(b"\r\n") else section.find(b"\r\n\r\n") + 2
        if end == 1:
            self._keep(section, MAX_TRAILERS)
            return -1
        if end > MAX_TRAILERS or _TRAILERS.fullmatch(section, 0, end) is None:
            raise BadFraming("malformed or too many trailers")
        return at + end + 2 - len(before)

    def _keep(self, rest: bytes, limit: int) -> None:
        if len(rest) > limit:
            raise BadFraming("chunk line or trailers too long")
        if b"\n" in rest and not self._trailing:
            raise BadFraming("bare line feed in a chunk size")
        self._line = rest


class Dechunker:
    """Takes the framing off a chunked body, for clients that speak HTTP/1.0.

    The framing itself has been checked by the walker that saw the same bytes before.
    """

    __slots__ = ("_left", "_line", "_over")

    def __init__(self) -> None:
        self._left = 0  # bytes of the current chunk still to come, with its final CRLF
        self._line = b""
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """The content among these bytes."""
        content: list[bytes] = []
        data = self._line + data
        self._line = b""
        at = 0
        while at < len(data) and not self._over:
            if self._left:
                taken = min(self._left, len(data) - at)
                # The last two of a chunk are its line end.
                content.append(data[at : at + min(taken, max(0, self._left - 2))])
                at += taken
                self._left -= taken
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._line = data[at:]
                break
            length = _SIZES[data[at:end]]
            self._over = not length
            self._left = length + 2
            at = end + 2
        return b"".join(content)
