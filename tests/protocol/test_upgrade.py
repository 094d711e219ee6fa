"""What the router reads and writes of a WebSocket session, and how it tells that one was closed."""

import pytest
from multidict import CIMultiDict

from replicarouter.errors import InvalidRequest, UpgradeRequired
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.response_head import parse_head
from replicarouter.protocol.upgrade import (
    LAST_BYTES,
    check_asked,
    ends_with_close,
    last_bytes,
    switches,
    switching_head,
    understand_session,
)
from tests.fakes.websocket import BINARY, PING, SWITCHING, TEXT, close_frame, frame

REALTIME = Endpoints().find("/v1/realtime")
assert REALTIME is not None


@pytest.mark.parametrize("value", ["websocket", "WebSocket", "WEBSOCKET"])
def test_a_session_is_asked_for_by_its_name(value: str) -> None:
    check_asked(CIMultiDict(Upgrade=value), upgrade=True, modern=True)


@pytest.mark.parametrize(
    ("value", "upgrade", "modern"),
    [
        ("websocket", False, True),
        ("websocket", True, False),
        ("h2c", True, True),
        ("websocket, h2c", True, True),
        ("", True, True),
    ],
)
def test_anything_else_is_told_to_upgrade(value: str, upgrade: bool, modern: bool) -> None:
    with pytest.raises(UpgradeRequired):
        check_asked(CIMultiDict(Upgrade=value), upgrade=upgrade, modern=modern)


@pytest.mark.parametrize(
    ("query", "model"),
    [
        ("", None),
        ("model=", None),
        ("models=m1", None),
        ("model=m1", "m1"),
        ("a=b&model=org%2Fm+1&c", "org/m 1"),
        ("model=m1&model=m1", "m1"),
        ("model=caf%C3%A9", "café"),
    ],
)
def test_the_query_names_the_model(query: str, model: str | None) -> None:
    assert REALTIME is not None
    asked = understand_session(REALTIME, query, body_length=None)
    assert (asked.endpoint, asked.model, asked.stream) == (REALTIME, model, True)


@pytest.mark.parametrize(
    ("query", "body_length"),
    [("model=m1&model=m2", None), ("model=m1", 1), ("&".join(f"a{n}=1" for n in range(200)), None)],
)
def test_what_could_be_read_in_two_ways_is_refused(query: str, body_length: int | None) -> None:
    assert REALTIME is not None
    with pytest.raises(InvalidRequest):
        understand_session(REALTIME, query, body_length=body_length)


def test_a_body_of_no_bytes_is_no_body() -> None:
    assert REALTIME is not None
    assert understand_session(REALTIME, "model=m1", body_length=0).model == "m1"


@pytest.mark.parametrize("line", [b"Upgrade: websocket", b"upgrade:WebSocket ", b"UPGRADE:  websocket"])
def test_a_switch_names_the_protocol(line: bytes) -> None:
    assert switches(b"HTTP/1.1 101 S\r\nA: b\r\n" + line)
    assert switches(b"HTTP/1.1 101 S\r\n" + line + b"\r\nA: b")


@pytest.mark.parametrize("line", [b"Upgrade: h2c", b"Upgrade: websocket2", b"X-Upgrade: websocket", b"A: b"])
def test_a_switch_to_anything_else_is_none(line: bytes) -> None:
    assert not switches(b"HTTP/1.1 101 S\r\n" + line)


def test_the_head_of_a_switch_crosses_with_its_two_fields_written_anew() -> None:
    head = switching_head(parse_head(SWITCHING.removesuffix(b"\r\n\r\n")), b"X-Request-Id: r\r\n")
    assert head == (
        b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
        b"Sec-WebSocket-Protocol: realtime\r\nX-Request-Id: r\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )


CLOSED = [b"", b"bye", b"\x88" * 60, b"x" * 123]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("reason", CLOSED)
@pytest.mark.parametrize("before", [b"", frame(b"x" * 70_000, BINARY), b"\x88\x88\x82" * 50])
def test_a_close_frame_is_seen_at_the_end(masked: bool, reason: bytes, before: bytes) -> None:
    said = last_bytes(b"", before + close_frame(reason=reason, masked=masked))
    assert ends_with_close(said, masked=masked)


def test_a_close_frame_may_be_empty() -> None:
    assert ends_with_close(b"\x88\x00", masked=False)
    assert ends_with_close(b"\x88\x80abcd", masked=True)


@pytest.mark.parametrize(
    "said",
    [b"", b"\x88", frame(b"hello"), frame(b"", PING), frame(b"x" * 200, BINARY), close_frame()[:-1]],
)
@pytest.mark.parametrize("masked", [False, True])
def test_other_ends_are_no_close_frame(said: bytes, masked: bool) -> None:
    assert not ends_with_close(last_bytes(b"", said), masked=masked)


def test_what_a_client_sends_is_masked_and_what_it_gets_is_not() -> None:
    assert not ends_with_close(close_frame(), masked=True)
    assert not ends_with_close(close_frame(masked=True), masked=False)


@pytest.mark.parametrize("size", [1, 2, 5, 100, 1000])
def test_the_last_bytes_are_the_same_however_they_come(size: int) -> None:
    whole = frame(b"hello", TEXT) * 100 + close_frame(reason=b"x" * 123)
    said = b""
    for start in range(0, len(whole), size):
        said = last_bytes(said, whole[start : start + size])
    assert said == whole[-LAST_BYTES:]
    assert ends_with_close(said, masked=False)
