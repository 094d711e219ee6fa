"""A replica's response head, parsed strictly: what is malformed or ambiguous is refused, not guessed."""

import re
from dataclasses import dataclass

from replicarouter.errors import BadReplicaResponse
from replicarouter.protocol.framing import Chunked, Framing, Length, NoBody, UntilClose

MAX_HEAD = 65536
"""Most bytes of a response head."""

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)*")

_SPECIAL = frozenset(
    (b"content-length", b"transfer-encoding", b"connection", b"content-type", b"content-encoding")
)
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # ours to write
        b"content-length",
        b"x-request-id",
        b"x-replicarouter-replica",
        b"x-replicarouter-affinity",
    )
)


@dataclass(slots=True)
class ResponseHead:
    """A parsed head. `fields` are the lines that cross the hop, byte for byte, each ending in CRLF.

    `length` is the declared body length, None when the body is chunked or ends with the connection.
    """

    status: int
    status_line: bytes
    fields: list[bytes]
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
        return self.status in (204, 304)

    @property
    def interim(self) -> bool:
        """Whether the real answer is still to come (1xx)."""
        return self.status < 200


def parse_head(block: bytes) -> ResponseHead:
    """Parse a head without its final empty line; raises `BadReplicaResponse` naming what is wrong."""
    end = block.find(b"\r\n")
    status_line = block if end < 0 else block[:end]
    matched = _STATUS_LINE.fullmatch(status_line)
    if matched is None:
        raise BadReplicaResponse("The replica's answer has a malformed status line.")
    if end >= 0 and _FIELDS.fullmatch(block, end) is None:
        raise BadReplicaResponse("The replica's answer has a malformed header field.")
    fields: list[bytes] = []
    special: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        name = line[: line.index(b":")].lower()
        if name in _SPECIAL:
            _note(special, name, line[len(name) + 1 :].strip())
        if name not in _HOP_BY_HOP:
            fields.append(line + b"\r\n")
    connection = special.get(b"connection", b"").lower()
    if connection and connection not in (b"keep-alive", b"close"):
        fields = _without_nominated(fields, connection)
    modern = matched[1] == b"1"
    chunked = _chunked(special, modern=modern)
    return ResponseHead(
        status=int(matched[2]),
        status_line=b"HTTP/1.1 " + status_line[9:] + b"\r\n",
        fields=fields,
        chunked=chunked,
        length=_length(special, chunked=chunked),
        keep_alive=modern and b"close" not in connection,
        event_stream=special.get(b"content-type", b"").lower().startswith(b"text/event-stream"),
        encoded=special.get(b"content-encoding", b"identity").lower() != b"identity",
    )


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


def _without_nominated(fields: list[bytes], connection: bytes) -> list[bytes]:
    """Drop the fields that `Connection` names as belonging to this hop."""
    nominated = {name.strip() for name in connection.split(b",")}
    return [line for line in fields if line[: line.index(b":")].lower() not in nominated]
