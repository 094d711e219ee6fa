"""WebSocket sessions (RFC 6455), as far as a router that passes their bytes on needs to know them."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from replicarouter.errors import InvalidRequest, UpgradeRequired
from replicarouter.protocol.endpoints import Endpoint
from replicarouter.protocol.request import InferenceRequest
from replicarouter.protocol.response_head import ResponseHead

UPGRADE_LINES = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""The fields of a handshake that belong to one hop, for either direction."""

MOST_FIELDS = 100
"""Fields of a query that are looked at."""

_CLOSE = 0x88
"""The first byte of a Close frame: a whole message of its own, opcode 8 (section 5.5.1)."""

_MOST_CONTROL = 125
"""Longest payload of a control frame (section 5.5)."""

LAST_BYTES = 6 + _MOST_CONTROL
"""Bytes that hold the longest Close frame with its mask."""

_SWITCH = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*(?=\r|\Z)", re.IGNORECASE)


def check_asked(headers: Mapping[str, str], *, upgrade: bool, modern: bool) -> None:
    """Raise `UpgradeRequired` unless a WebSocket session was asked for.

    `upgrade`: the head has both fields of a request to switch. HTTP/1.0 cannot switch (RFC 9110,
    section 7.8).
    """
    if not (upgrade and modern and headers.get("Upgrade", "").lower() == UpgradeRequired.upgrade):
        raise UpgradeRequired("This path serves WebSocket sessions: connect with a WebSocket client.")


def understand_session(endpoint: Endpoint, query: str, *, body_length: int | None) -> InferenceRequest:
    """Read what routing needs: a session names its model in the query. Raises `InvalidRequest`."""
    if body_length:
        raise InvalidRequest("A request for a WebSocket session has no body.")
    try:
        names = set(parse_qs(query, max_num_fields=MOST_FIELDS).get("model", ()))
    except ValueError:
        raise InvalidRequest("The query has too many fields.") from None
    if len(names) > 1:
        raise InvalidRequest("The query names several models: name one.", param="model")
    return InferenceRequest(endpoint, names.pop() if names else None, stream=True)


def switches(head: bytes) -> bool:
    """Whether a 101 head is the answer to a request for a WebSocket session."""
    return _SWITCH.search(head) is not None


def switching_head(head: ResponseHead, receipts: bytes) -> bytes:
    """The 101 head for the client; `receipts` are whole field lines of ours."""
    return b"%b%b\r\n%b%b\r\n" % (head.status_line, head.fields, receipts, UPGRADE_LINES)


def last_bytes(before: bytes, data: bytes) -> bytes:
    """The end of what one side has said: `before` was the end up to now, `data` came behind it."""
    if len(data) < LAST_BYTES:
        data = before + data
    return data[-LAST_BYTES:]


def ends_with_close(said: bytes, *, masked: bool) -> bool:
    """Whether the last bytes of one side are a Close frame, the last that it may send; `masked`: the
    client's are (section 5.1).

    Frames are not walked over, so that a session costs nothing for a frame. The end of another frame can
    be taken for a Close frame; of random bytes, one end in 500.
    """
    overhead = 6 if masked else 2
    at = said.find(_CLOSE)
    while at >= 0:
        length = len(said) - at - overhead
        if 0 <= length <= _MOST_CONTROL and said[at + 1] == length | masked << 7:
            return True
        at = said.find(_CLOSE, at + 1)
    return False
