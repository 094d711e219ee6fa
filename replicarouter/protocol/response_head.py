"""A replica's response head, parsed strictly: what is malformed or ambiguous is refused, not guessed."""

import re
from dataclasses import dataclass
from functools import lru_cache

from replicarouter.errors import BadReplicaResponse
from replicarouter.protocol.framing import Chunked, Framing, Length, NoBody, UntilClose

MAX_HEAD = 65536
"""Most bytes of a response head."""

NO_CONTENT = 204
BODILESS = (NO_CONTENT, 304)

REMEMBERED_HEADS = 256

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)*")
_DECIDING = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|content-type|content-encoding):([^\r\n]*)",
    re.IGNORECASE,
)
_STOPPING = re.compile(
    rb"\r\n(?:connection|keep-alive|proxy-authenticate|proxy-connection|te|trailer|transfer-encoding"
    # these are ours to write
    rb"|upgrade|content-length|x-request-id|x-replicarouter-replica|x-replicarouter-affinity):[^\r\n]*",
    re.IGNORECASE,
)
_CORS = re.compile(rb"\r\naccess-control-allow-(?:origin|credentials):[^\r\n]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A parsed head. `fields` are the lines that cross the hop, byte for byte, each behind a CRLF.

    `length` is the declared body length, None when the body is chunked or ends with the connection.
    """

    status: int
    status_line: bytes
    fields: bytes
    chunked: bool
    length: int | None
    keep_alive: bool
    event_stream: bool
    encoded: bool

    def framing(self) -> Framing:
        """The walker that finds the end of this answer's body."""
        if self.bodiless:
            return NoBody()
        if self.chunked:
            return Chunked()
        return UntilClose() if self.length is None else Length(self.length)

    @property
    def bodiless(self) -> bool:
        """Whether this status never has a body."""
        return self.status in BODILESS

    @property
    def interim(self) -> bool:
        """Whether the real answer is still to come (1xx)."""
        return self.status < 200


@lru_cache(maxsize=REMEMBERED_HEADS)
def parse_head(block: bytes) -> ResponseHead:
    """Parse a head without its final empty line; raises `BadReplicaResponse` naming what is wrong.

    Remembers the last heads: those of an engine's streams differ in their date alone.
    """
    end = block.find(b"\r\n")
    if end < 0:
        end = len(block)
    matched = _STATUS_LINE.fullmatch(block, 0, end)
    if matched is None:
        raise BadReplicaResponse("The replica's answer has a malformed status line.")
    if _FIELDS.fullmatch(block, end) is None:
        raise BadReplicaResponse("The replica's answer has a malformed header field.")
    special: dict[bytes, bytes] = {}
    for name, value in _DECIDING.findall(block, end):
        _note(special, name.lower(), value.strip())
    fields = _STOPPING.sub(b"", block[end:])
    connection = special.get(b"connection", b"").lower()
    if connection and connection not in (b"keep-alive", b"close"):
        fields = _without_nominated(fields, connection)
    modern = matched[1] == b"1"
    chunked = _chunked(special, modern=modern)
    status = int(matched[2])
    length = _length(special, chunked=chunked)
    # What such an answer declares may still come, and must not be taken for the next answer.
    spoilt = (status in BODILESS and chunked) or (status == NO_CONTENT and bool(length))
    return ResponseHead(
        status=status,
        status_line=b"HTTP/1.1 " + block[9:end],
        fields=fields,
        chunked=chunked,
        length=length,
        keep_alive=modern and not spoilt and b"close" not in connection,
        event_stream=special.get(b"content-type", b"").lower().startswith(b"text/event-stream"),
        encoded=special.get(b"content-encoding", b"identity").lower() != b"identity",
    )


@lru_cache(maxsize=REMEMBERED_HEADS)
def without_cors(fields: bytes) -> bytes:
    """The field lines of a head, but for what they say to pages of other origins."""
    return _CORS.sub(b"", fields)


def _note(special: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Keep a field that decides something; a repeated list field is one list."""
    if name not in special:
        special[name] = value
    elif name == b"content-length":
        raise BadReplicaResponse("The replica's answer declares its length twice.")
    else:
        special[name] += b", " + value


def _chunked(special: dict[bytes, bytes], *, modern: bool) -> bool:
    coding = special.get(b"transfer-encoding")
    if coding is None:
        return False
    if b"content-length" in special:
        raise BadReplicaResponse("The replica's answer has both a length and a transfer encoding.")
    if not modern or coding.lower() != b"chunked":
        raise BadReplicaResponse("The replica's answer has a transfer encoding that is not 'chunked'.")
    return True


def _length(special: dict[bytes, bytes], *, chunked: bool) -> int | None:
    if chunked or b"content-length" not in special:
        return None
    value = special[b"content-length"]
    if not value.isdigit() or len(value) > 18:
        raise BadReplicaResponse("The replica's answer has a malformed length.")
    return int(value)


def _without_nominated(fields: bytes, connection: bytes) -> bytes:
    """Drop the fields that `Connection` names as belonging to this hop."""
    nominated = {name.strip() for name in connection.split(b",")}
    lines = fields.split(b"\r\n")[1:]
    return b"".join(b"\r\n" + line for line in lines if line[: line.index(b":")].lower() not in nominated)
