"""What crosses the hop: heads toward the replica and toward the client, written as bytes."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from replicarouter.protocol.response_head import BODILESS, ResponseHead, without_cors

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Header fields as they arrived: (name, value), names in the sender's spelling."""

MAX_REQUEST_ID = 128
"""Longest request id that is passed on to a replica."""

UNKNOWN = -1
"""The length of a body that is passed on while it arrives, and did not declare one."""

_STOP_HERE = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
        # written anew for the replica
        b"host",
        b"content-length",
        b"x-request-id",
        # would let a client steer routing inside engines and gateways behind us
        b"x-gateway-destination-endpoint",
        b"x-prefiller-host-port",
        b"x-prefiller-hosts-ports",
        b"x-backend-url",
    )
)
_CREDENTIALS = frozenset((b"authorization", b"x-api-key"))
_FORWARDED = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip"))
_STOPPING = {
    (False, True): _STOP_HERE,
    (True, True): _STOP_HERE | _CREDENTIALS,
    (False, False): _STOP_HERE | _FORWARDED,
    (True, False): _STOP_HERE | _CREDENTIALS | _FORWARDED,
}
"""By whether credentials are replaced, and whether what is said of other addresses goes on."""

_PRINTABLE = re.compile(rf"[\x21-\x7e]{{1,{MAX_REQUEST_ID}}}")


def crossing_fields(
    headers: RawHeaders,
    connection: Sequence[str],
    *,
    replace_credentials: bool,
    forwards: bool = True,
    replaced: frozenset[bytes] = frozenset(),
) -> list[bytes]:
    """The request's field lines that go on to the replica, each ending in CRLF.

    `connection`: the values of its `Connection` fields, which name others that stop here. `forwards`:
    whether the sender may say for whom it asks (`X-Forwarded-For` and the like). `replaced`: names, in
    lower case, of fields in whose place others are written.
    """
    stop = _STOPPING[replace_credentials, forwards]
    if replaced:
        stop |= replaced
    for value in connection:
        if value.lower() not in ("keep-alive", "close"):
            stop = stop.union(
                name.strip().lower().encode("utf-8", "surrogateescape") for name in value.split(",")
            )
    return [b"%b: %b\r\n" % (name, value) for name, value in headers if name.lower() not in stop]


def request_head(*lines: bytes, request_id: str, body_length: int | None) -> bytes:
    """A whole request head: the request line and other `lines`, then what is ours to say. `body_length` None
    means there is no body, `UNKNOWN` that it is chunked."""
    if body_length is None:
        framing = ""
    elif body_length == UNKNOWN:
        framing = "Transfer-Encoding: chunked\r\n"
    else:
        framing = f"Content-Length: {body_length}\r\n"
    own = f"X-Request-Id: {request_id}\r\n{framing}\r\n"
    return b"".join((*lines, own.encode("latin-1")))


def response_head(
    head: ResponseHead, receipts: bytes, *, modern: bool, close: bool, cors: bytes = b""
) -> bytes:
    """The head for the client. `modern` clients speak HTTP/1.1; for others the body must end with
    the connection. `receipts` and `cors` are whole field lines of ours; what we tell pages of other
    origins takes the place of what the engine tells them."""
    if head.bodiless:
        framing = b""
    elif head.length is not None:
        framing = b"Content-Length: %d\r\n" % head.length
    else:
        framing = b"Transfer-Encoding: chunked\r\n" if head.chunked and modern else b""
    if close:
        framing += b"Connection: close\r\n"
    fields = without_cors(head.fields) if cors else head.fields
    return b"%b%b\r\n%b%b%b\r\n" % (head.status_line, fields, receipts, cors, framing)


def local_head(
    status: int, length: int, headers: Iterable[tuple[str, str]], *, close: bool, cors: bytes = b""
) -> bytes:
    """The head of an answer that the router makes itself; `cors` are whole field lines."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers]
    if status not in BODILESS:
        lines.append(f"Content-Length: {length}\r\n")
    if close:
        lines.append("Connection: close\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape") + cors + b"\r\n"


def usable_request_id(value: str | None) -> str | None:
    """The client's request id if it can be passed on to a replica as it is."""
    return value if value is not None and _PRINTABLE.fullmatch(value) else None
