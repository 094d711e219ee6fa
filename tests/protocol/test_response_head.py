"""Response heads: the good ones as they are, everything malformed or ambiguous refused."""

from collections.abc import Callable

import pytest

from replicarouter.errors import BadReplicaResponse
from replicarouter.protocol.framing import Chunked, Length, NoBody, UntilClose
from replicarouter.protocol.response_head import ResponseHead, parse_head

Recorded = Callable[[str], tuple[bytes, bytes]]

OK = b"HTTP/1.1 200 OK"
JSON = b"\r\nContent-Type: application/json"


def test_a_usual_head_is_read() -> None:
    head = parse_head(OK + JSON + b"\r\nContent-Length: 12\r\nX-Other: a b")

    assert head == ResponseHead(
        status=200,
        status_line=b"HTTP/1.1 200 OK",
        fields=b"\r\nContent-Type: application/json\r\nX-Other: a b",
        chunked=False,
        length=12,
        keep_alive=True,
        event_stream=False,
        encoded=False,
    )


STATUS_LINES = {
    b"HTTP/1.1 200 OK": (200, b"HTTP/1.1 200 OK"),
    b"HTTP/1.1 200": (200, b"HTTP/1.1 200"),
    b"HTTP/1.1 200 ": (200, b"HTTP/1.1 200 "),
    b"HTTP/1.1 404 Not Found": (404, b"HTTP/1.1 404 Not Found"),
    b"HTTP/1.1 299 \xc3\xa4 odd\treason": (299, b"HTTP/1.1 299 \xc3\xa4 odd\treason"),
    b"HTTP/1.0 200 OK": (200, b"HTTP/1.1 200 OK"),
    b"HTTP/1.1 599 X": (599, b"HTTP/1.1 599 X"),
}


@pytest.mark.parametrize("line", STATUS_LINES)
def test_a_status_line_is_passed_on_in_our_version(line: bytes) -> None:
    head = parse_head(line)
    assert (head.status, head.status_line) == STATUS_LINES[line]


MALFORMED_LINES = [
    *(b"", b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 abc OK"),
    *(b"HTTP/1.1 099 OK", b"HTTP/1.1  200 OK", b"HTTP/1.1\t200 OK", b" HTTP/1.1 200 OK", b"http/1.1 200 OK"),
    *(b"HTTP/2 200 OK", b"HTTP/1.2 200 OK", b"HTTP/1.10 200 OK", b"HTTP/1.1 200OK", b"ICY 200 OK"),
    *(b"HTTP/1.1 200 O\0K", b"HTTP/1.1 200 O\x7fK", b"HTTP/1.1 200 O\nK", b"HTTP/1.1 200 O\rK", b"\r\n" + OK),
]


@pytest.mark.parametrize("line", MALFORMED_LINES)
def test_a_malformed_status_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadReplicaResponse):
        parse_head(line + JSON)


MALFORMED_FIELDS = [
    *(b"no colon", b": no name", b"two words: x", b"Blank-Behind : x", b" Folded: x", b"\tFolded: x"),
    *(b"X: a\r\n folded", b"X: a\nY: b", b"X: a\rY: b", b"X: a\0b", b"X: a\x01b", b"X: a\x7fb"),
    *(b"N\xc3\xa4me: x", b"Na(me: x", b"Na,me: x", b"", b"X: a\r\n"),
]


@pytest.mark.parametrize("field", MALFORMED_FIELDS)
def test_a_malformed_field_is_refused(field: bytes) -> None:
    with pytest.raises(BadReplicaResponse):
        parse_head(OK + b"\r\n" + field + JSON)


AMBIGUOUS = {
    "two equal lengths": b"\r\nContent-Length: 5\r\nContent-Length: 5",
    "two lengths": b"\r\nContent-Length: 5\r\ncontent-length: 6",
    "a list of lengths": b"\r\nContent-Length: 5, 5",
    "a length and chunks": b"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
    "chunks and a length": b"\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
    "chunked twice": b"\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "chunked twice in a list": b"\r\nTransfer-Encoding: chunked, chunked",
    "another coding": b"\r\nTransfer-Encoding: gzip",
    "another coding inside": b"\r\nTransfer-Encoding: gzip, chunked",
    "another coding outside": b"\r\nTransfer-Encoding: chunked, gzip",
    "identity": b"\r\nTransfer-Encoding: identity",
    "an empty coding": b"\r\nTransfer-Encoding: ",
    "a parameter": b"\r\nTransfer-Encoding: chunked;q=1",
    "a vertical tab": b"\r\nTransfer-Encoding: \x0bchunked",
    "an empty length": b"\r\nContent-Length: ",
    "a negative length": b"\r\nContent-Length: -1",
    "a length with a sign": b"\r\nContent-Length: +1",
    "a length in hex": b"\r\nContent-Length: 0x10",
    "a length with an underscore": b"\r\nContent-Length: 1_0",
    "a length with a fraction": b"\r\nContent-Length: 1.0",
    "a length in two words": b"\r\nContent-Length: 1 0",
    "a length beyond any body": b"\r\nContent-Length: " + b"9" * 19,
    "a length in other digits": b"\r\nContent-Length: \xd9\xa1",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_framing_is_refused(name: str) -> None:
    with pytest.raises(BadReplicaResponse):
        parse_head(OK + AMBIGUOUS[name])


def test_chunks_are_not_taken_from_an_old_server() -> None:
    with pytest.raises(BadReplicaResponse):
        parse_head(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked")


FRAMINGS = {
    OK + b"\r\nContent-Length: 5": Length,
    OK + b"\r\nContent-Length: 0": Length,
    OK + b"\r\ncontent-length:\t5 ": Length,
    OK + b"\r\nTransfer-Encoding: chunked": Chunked,
    OK + b"\r\ntransfer-encoding:CHUNKED": Chunked,
    OK + JSON: UntilClose,
    OK: UntilClose,
    b"HTTP/1.0 200 OK": UntilClose,
    b"HTTP/1.1 204 No Content": NoBody,
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5": NoBody,
    b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked": NoBody,
}


@pytest.mark.parametrize("block", FRAMINGS)
def test_the_head_decides_where_the_body_ends(block: bytes) -> None:
    assert type(parse_head(block).framing()) is FRAMINGS[block]


CONNECTIONS = {
    b"": True,
    b"\r\nConnection: keep-alive": True,
    b"\r\nConnection: Keep-Alive": True,
    b"\r\nConnection: close": False,
    b"\r\nConnection: Close": False,
    b"\r\nConnection: keep-alive, close": False,
    b"\r\nConnection: keep-alive\r\nConnection: close": False,
    b"\r\nConnection: X-Other": True,
}


@pytest.mark.parametrize("fields", CONNECTIONS)
def test_the_connection_is_kept_unless_the_replica_closes_it(fields: bytes) -> None:
    assert parse_head(OK + fields).keep_alive == CONNECTIONS[fields]


def test_an_old_server_closes_its_connection() -> None:
    assert not parse_head(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1").keep_alive


STOPPING = [
    *(b"Connection: keep-alive", b"Keep-Alive: timeout=5", b"Proxy-Authenticate: Basic", b"TE: trailers"),
    *(b"Proxy-Connection: close", b"Trailer: X-Sum", b"Transfer-Encoding: chunked", b"Upgrade: h2c"),
    *(b"X-Request-Id: theirs", b"X-Replicarouter-Replica: x", b"X-Replicarouter-Affinity: hit"),
    *(b"cOnNeCtIoN: close", b"x-request-id: theirs", b"Connection:"),
]


@pytest.mark.parametrize("line", STOPPING)
def test_fields_of_this_hop_and_ours_stop_here(line: bytes) -> None:
    head = parse_head(OK + b"\r\nX-One: 1\r\n" + line + b"\r\nX-Two: 2")
    assert head.fields == b"\r\nX-One: 1\r\nX-Two: 2"


PASSING = [b"Server: uvicorn", b"date: now", b"Set-Cookie: a=b", b"X-Te: 1", b"Tea: 1", b"Trailers: 1"]


@pytest.mark.parametrize("line", PASSING)
def test_other_fields_cross_byte_for_byte(line: bytes) -> None:
    assert parse_head(OK + b"\r\n" + line).fields == b"\r\n" + line


def test_odd_values_cross_byte_for_byte() -> None:
    lines = b"\r\nX-Odd:  \ttwo  words\t \r\nX-Odd: \xff\xfe\r\nX-Empty:"
    assert parse_head(OK + lines).fields == lines


def test_fields_that_the_connection_names_stop_here() -> None:
    lines = b"\r\nConnection: close, X-Hop ,x-other\r\nX-Hop: 1\r\nX-OTHER: 2\r\nX-Stays: 3"
    assert parse_head(OK + lines).fields == b"\r\nX-Stays: 3"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; charset=utf-8", True),
        (b"application/json", False),
        (b"text/plain", False),
    ],
)
def test_an_event_stream_is_told_by_its_type(value: bytes, expected: bool) -> None:
    assert parse_head(OK + b"\r\nContent-Type: " + value).event_stream is expected


@pytest.mark.parametrize(("value", "expected"), [(b"gzip", True), (b"identity", False), (b"Identity", False)])
def test_an_encoded_body_is_told_by_its_coding(value: bytes, expected: bool) -> None:
    assert parse_head(OK + b"\r\nContent-Encoding: " + value).encoded is expected


@pytest.mark.parametrize(("status", "expected"), [(100, True), (103, True), (199, True), (200, False)])
def test_the_real_answer_comes_behind_an_interim_one(status: int, expected: bool) -> None:
    assert parse_head(b"HTTP/1.1 %d X" % status).interim is expected


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("chat", 200, Length),
        ("chat-stream", 200, Chunked),
        ("unknown-model", 404, Length),
        ("get-health", 200, Length),
    ],
)
def test_recorded_heads_are_read(
    recorded: Recorded, name: str, status: int, kind: type[Length] | type[Chunked]
) -> None:
    block, body = recorded(name)
    head = parse_head(block)

    assert head.status == status
    assert head.framing().feed(body) == len(body)
    assert isinstance(head.framing(), kind)
    assert head.keep_alive
    assert b"server: uvicorn" in head.fields
