"""Response heads, spoilt in every way that comes to mind, and what must hold of a head that is accepted."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from replicarouter.errors import BadReplicaResponse
from replicarouter.protocol.framing import Chunked, Length, NoBody, UntilClose
from replicarouter.protocol.headers import response_head
from replicarouter.protocol.response_head import ResponseHead, parse_head

DATA = Path(__file__).parent / "data"

PLAIN = [
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\nTransfer-Encoding: chunked",
    b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Type: text/event-stream",
    b"HTTP/1.0 404 File not found\r\nServer: SimpleHTTP\r\nConnection: close\r\nContent-Length: 9",
    b"HTTP/1.1 204 No Content\r\nX-Request-Id: engine-1\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1",
    b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length:0",
    b"HTTP/1.1 200 \r\nUpgrade: h2c\r\nTrailer: X-Sum\r\nTE: trailers\r\nProxy-Connection: close",
]

PIECES = [
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b"\t",
        b" ",
        b":",
        b",",
        b";",
        b"\x0b",
        b"\x0c",
        b"\x7f",
        b"\x85",
        b"\xa0",
    ),
    *(
        b"\r\n ",
        b"\r\n\t",
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r\n",
        b"0",
        b"9" * 19,
        b"+",
        b"-",
        b"0x1",
        b"1_0",
        b", 1",
    ),
    *(b"HTTP/1.1 200 OK", b"HTTP/1.0", b"HTTP/1.2", b"chunked", b"close", b"100", b"304", b"gzip, "),
]
LINES = [
    b"Content-Length: 5",
    b"content-length:6",
    b"Content-Length : 5",
    b"Content-Length: +5",
    b"Content-Length: 5, 5",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:CHUNKED",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding:",
    b"Transfer_Encoding: chunked",
    b"Connection: close",
    b"Connection: content-type, Date",
    b"Connection: X-Hop,,\t close ,x-request-id",
    b"Connection: Transfer-Encoding, Content-Length",
    b"X-Hop: 1",
    b"Keep-Alive: timeout=1",
    b"X-Request-Id: forged",
    b"X-Replicarouter-Replica: forged",
    b"Content-Encoding: gzip",
    b"X-Injected: a\nSet-Cookie: b",
    b" folded",
]

Verb = Literal[
    "insert",
    "replace",
    "delete",
    "swap case",
    "add a line",
    "add to a line",
    "double a line",
    "move a line",
    "old version",
    "cut",
]
VERBS: Sequence[Verb] = (
    "insert", "replace", "delete", "swap case", "add a line", "add a line", "add a line", "add a line",
    "add to a line", "add to a line", "double a line", "move a line", "old version", "cut",
)  # fmt: skip

HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer"),
    *(b"transfer-encoding", b"upgrade"),
}
OURS = {b"content-length", b"x-request-id", b"x-replicarouter-replica", b"x-replicarouter-affinity"}

FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
CLOSE = re.compile(rb"close:", re.IGNORECASE)
START = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})( [\t\x20-\x7e\x80-\xff]*)?")


def seeds() -> list[bytes]:
    """Heads without their empty line: recorded from vLLM, and some of other servers."""
    recorded = [path.read_bytes().partition(b"\r\n\r\n")[0] for path in sorted(DATA.glob("*.http"))]
    return [*dict.fromkeys(recorded), *PLAIN]


@dataclass(frozen=True, slots=True)
class Spoiling:
    """One change to a head. `at` is a place as a share of it, so that any number fits any head;
    `piece` chooses from `PIECES` or `LINES`."""

    verb: Verb
    at: float
    size: int
    piece: int

    def apply(self, block: bytes) -> bytes:
        at = int(self.at * len(block))
        end = min(len(block), at + self.size)
        piece = PIECES[self.piece % len(PIECES)]
        if self.verb == "insert":
            return block[:at] + piece + block[at:]
        if self.verb == "replace":
            return block[:at] + piece + block[end:]
        if self.verb == "delete":
            return block[:at] + block[end:]
        if self.verb == "swap case":
            return block[:at] + block[at:end].swapcase() + block[end:]
        if self.verb == "old version":
            return block.replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        if self.verb == "cut":
            return block[:at]
        return self._change_lines(block.split(b"\r\n"), piece)

    def _change_lines(self, lines: list[bytes], piece: bytes) -> bytes:
        number = int(self.at * len(lines))
        if self.verb == "add to a line":
            name, colon, value = lines[number].partition(b":")
            lines[number] = name + colon + (value + piece if self.size % 2 else piece + value)
        elif self.verb == "add a line":
            lines.insert(number + 1, LINES[self.piece % len(LINES)])
        elif self.verb == "double a line":
            lines.insert(number + 1, lines[number])
        else:
            line = lines.pop(number)
            lines.insert(self.size % (len(lines) + 1), line)
        return b"\r\n".join(lines)


def spoil(block: bytes, spoilings: Iterable[Spoiling]) -> bytes:
    for spoiling in spoilings:
        block = spoiling.apply(block)
    return block


def verdict(block: bytes) -> str:
    """How the parser takes these bytes: "accepted", or its reason. Fails if it takes them wrongly."""
    try:
        head = parse_head(block)
    except BadReplicaResponse as error:
        return str(error)
    check(block, head)
    return "accepted"


def check(block: bytes, head: ResponseHead) -> None:
    """Assert that an accepted head is sound, and that what crosses of it is."""
    start, *lines = block.split(b"\r\n")
    matched = START.fullmatch(start)
    assert matched is not None, start
    assert head.status == int(matched[2])
    pairs = []
    for line in lines:
        field = FIELD.fullmatch(line)
        assert field is not None, line
        pairs.append((field[1].lower(), field[2].strip(b" \t"), line))
    check_framing(pairs, head, modern=matched[1] == b"1")
    nominated = {
        option.strip(b" \t").lower()
        for name, value, _ in pairs
        if name == b"connection"
        for option in value.split(b",")
    }
    assert not (head.keep_alive and (b"close" in nominated or matched[1] == b"0"))
    crossing = [line for name, _, line in pairs if name not in HOP_BY_HOP | OURS | nominated]
    _, *crossed = head.fields.split(b"\r\n")
    # "Close" is a reserved name, never a field of its own: whether it crosses makes no difference.
    assert [line for line in crossed if not CLOSE.match(line)] == [
        line for line in crossing if not CLOSE.match(line)
    ]
    for modern in (True, False):
        for close in (True, False):
            check_written(response_head(head, b"X-Ours: 1\r\n", modern=modern, close=close), head, crossed)


def check_framing(pairs: list[tuple[bytes, bytes, bytes]], head: ResponseHead, *, modern: bool) -> None:
    """One framing at most, the one that the fields say."""
    lengths = [value for name, value, _ in pairs if name == b"content-length"]
    codings = [value for name, value, _ in pairs if name == b"transfer-encoding"]
    assert len(lengths) + len(codings) <= 1, (lengths, codings)
    if codings:
        assert codings[0].lower() == b"chunked"
        assert modern
    if lengths:
        assert re.fullmatch(rb"[0-9]{1,18}", lengths[0]), lengths
    assert head.chunked == bool(codings)
    assert head.length == (int(lengths[0]) if lengths else None)
    expected: type[Any] = Chunked if codings else Length if lengths else UntilClose
    if head.status in {204, 304}:
        expected = NoBody
    assert type(head.framing()) is expected


def check_written(raw: bytes, head: ResponseHead, crossed: list[bytes]) -> None:
    """Assert that the head for the client is one head, with the fields that cross and one framing."""
    assert raw.index(b"\r\n\r\n") == len(raw) - 4
    start, *lines = raw[:-4].split(b"\r\n")
    assert START.fullmatch(start), start
    assert start.startswith(b"HTTP/1.1 %d" % head.status)
    fields = [FIELD.fullmatch(line) for line in lines]
    assert None not in fields, lines
    names = [field[1].lower() for field in fields if field is not None]
    assert lines[: len(crossed)] == crossed
    assert set(names[len(crossed) :]) <= {b"x-ours", b"content-length", b"transfer-encoding", b"connection"}
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert names.count(b"connection") <= 1
