"""What crosses the hop, and heads written as bytes."""

import pytest

from replicarouter.protocol.headers import (
    MAX_REQUEST_ID,
    UNKNOWN,
    crossing_fields,
    local_head,
    request_head,
    response_head,
    usable_request_id,
)
from replicarouter.protocol.response_head import parse_head

PLAIN = (
    (b"Host", b"router"),
    (b"Content-Type", b"application/json"),
    (b"AUTHORIZATION", b"Bearer x"),
    (b"x-api-key", b"y"),
    (b"X-Odd", b"\xff a\tb"),
)
OURS = [
    *(b"Connection", b"Keep-Alive", b"Proxy-Authenticate", b"Proxy-Authorization", b"Proxy-Connection"),
    *(b"TE", b"Trailer", b"Transfer-Encoding", b"Upgrade", b"Expect", b"Host", b"Content-Length"),
    *(b"X-Request-Id", b"x-gateway-destination-endpoint", b"x-prefiller-host-port"),
    *(b"x-prefiller-hosts-ports", b"x-backend-url"),
]


def crossing(
    *connection: str, headers: tuple[tuple[bytes, bytes], ...] = PLAIN, key: bool = False
) -> list[bytes]:
    return crossing_fields(headers, connection, replace_credentials=key)


def test_fields_cross_in_order_and_byte_for_byte() -> None:
    assert crossing() == [
        b"Content-Type: application/json\r\n",
        b"AUTHORIZATION: Bearer x\r\n",
        b"x-api-key: y\r\n",
        b"X-Odd: \xff a\tb\r\n",
    ]


def test_repeated_fields_stay_repeated() -> None:
    twice = ((b"Cookie", b"a"), (b"cookie", b"b"))
    assert crossing(headers=twice) == [b"Cookie: a\r\n", b"cookie: b\r\n"]


def test_the_callers_credentials_are_taken_off_when_the_replica_has_its_own() -> None:
    assert crossing(key=True) == [b"Content-Type: application/json\r\n", b"X-Odd: \xff a\tb\r\n"]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("spelled", [bytes.lower, bytes.upper])
def test_fields_of_this_hop_stop_here(name: bytes, spelled: type[bytes]) -> None:
    assert crossing(headers=((spelled(name), b"x"), (b"X-Stays", b"1"))) == [b"X-Stays: 1\r\n"]


@pytest.mark.parametrize("value", ["keep-alive", "close", "Close", "KEEP-ALIVE", ""])
def test_a_plain_connection_field_stops_nothing_else(value: str) -> None:
    headers = ((b"X-Stays", b"1"), (b"close", b"2"))
    assert len(crossing(value, headers=headers)) == 2


@pytest.mark.parametrize("values", [("X-Hop, x-other",), ("x-hop", "X-OTHER"), ("close,X-Hop,\tX-Other ",)])
def test_fields_that_the_connection_names_stop_here(values: tuple[str, ...]) -> None:
    headers = ((b"X-Hop", b"1"), (b"x-OTHER", b"2"), (b"X-Stays", b"3"))
    assert crossing(*values, headers=headers) == [b"X-Stays: 3\r\n"]


def test_a_connection_field_of_any_bytes_is_survived() -> None:
    odd = b"\xff, x-hop".decode("utf-8", "surrogateescape")
    assert crossing(odd, headers=((b"X-Hop", b"1"), (b"X-Stays", b"3"))) == [b"X-Stays: 3\r\n"]


def test_a_request_head_is_whole() -> None:
    head = request_head(b"POST /x HTTP/1.1\r\nHost: r\r\n", b"A: b\r\n", request_id="id-1", body_length=12)
    assert head == b"POST /x HTTP/1.1\r\nHost: r\r\nA: b\r\nX-Request-Id: id-1\r\nContent-Length: 12\r\n\r\n"


def test_a_request_without_a_body_declares_no_length() -> None:
    head = request_head(b"GET /x HTTP/1.1\r\n", request_id="i", body_length=None)
    assert head == b"GET /x HTTP/1.1\r\nX-Request-Id: i\r\n\r\n"


def test_a_body_of_unknown_length_is_chunked() -> None:
    head = request_head(b"POST /x HTTP/1.1\r\n", request_id="i", body_length=UNKNOWN)
    assert head == b"POST /x HTTP/1.1\r\nX-Request-Id: i\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_empty_body_is_declared() -> None:
    head = request_head(b"POST /x HTTP/1.1\r\n", request_id="i", body_length=0)
    assert head.endswith(b"Content-Length: 0\r\n\r\n")


OK = b"HTTP/1.1 200 OK\r\nServer: uvicorn"
CLOSE = b"Connection: close\r\n"
RESPONSES = {
    "a length": (b"\r\nContent-Length: 5", True, False, b"Content-Length: 5\r\n"),
    "a length for an old client": (b"\r\nContent-Length: 5", False, True, b"Content-Length: 5\r\n" + CLOSE),
    "chunks": (b"\r\nTransfer-Encoding: chunked", True, False, b"Transfer-Encoding: chunked\r\n"),
    "chunks, then the end": (
        b"\r\nTransfer-Encoding: chunked",
        True,
        True,
        b"Transfer-Encoding: chunked\r\n" + CLOSE,
    ),
    "chunks for an old client": (b"\r\nTransfer-Encoding: chunked", False, True, CLOSE),
    "until the end": (b"", True, True, CLOSE),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_head_says_where_its_body_ends_for_this_client(name: str) -> None:
    fields, modern, close, framing = RESPONSES[name]
    head = response_head(parse_head(OK + fields), b"X-Ours: 1\r\n", modern=modern, close=close)
    assert head == OK + b"\r\nX-Ours: 1\r\n" + framing + b"\r\n"


def test_a_response_without_a_body_has_no_framing() -> None:
    gone = parse_head(b"HTTP/1.1 204 No Content\r\nContent-Length: 0")
    assert response_head(gone, b"", modern=True, close=False) == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_a_local_head_is_whole() -> None:
    head = local_head(404, 7, [("Content-Type", "text/plain"), ("X-Request-Id", "a")], close=True)
    assert head == (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nX-Request-Id: a\r\n"
        b"Content-Length: 7\r\nConnection: close\r\n\r\n"
    )


def test_a_local_head_returns_the_clients_bytes_as_they_came() -> None:
    sent = b"caf\xc3\xa9-\xff"
    head = local_head(200, 0, [("X-Request-Id", sent.decode("utf-8", "surrogateescape"))], close=False)
    assert b"X-Request-Id: " + sent + b"\r\n" in head


@pytest.mark.parametrize("value", ["a", "Root=1-67891233-abc", "!~", "x" * MAX_REQUEST_ID])
def test_a_printable_request_id_is_passed_on(value: str) -> None:
    assert usable_request_id(value) == value


@pytest.mark.parametrize("value", [None, "", " ", "a b", "a\tb", "é", "\udcff", "x" * (MAX_REQUEST_ID + 1)])
def test_another_request_id_is_not(value: str | None) -> None:
    assert usable_request_id(value) is None
