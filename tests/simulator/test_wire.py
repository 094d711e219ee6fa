import re

import pytest

from replicarouter.simulator.wire import (
    HttpRequest,
    MalformedRequest,
    Reply,
    RequestReader,
    stream_head,
)

HEAD = b"POST /v1/x?a=1 HTTP/1.1\r\nHost: a\r\nX-Thing:  one \r\n"
LENGTH = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
TRAILER = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nSum: 1\r\n\r\n"
NOW = 1795951605.9


def read_all(*pieces: bytes) -> list[HttpRequest]:
    reader, requests = RequestReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next_request()) is not None:
            requests.append(request)
    assert reader.buffered == 0
    return requests


@pytest.mark.parametrize("raw", [LENGTH, CHUNKED, TRAILER], ids=["length", "chunked", "trailer"])
def test_request_is_the_same_however_it_is_cut(raw: bytes) -> None:
    (whole,) = read_all(raw)
    assert (whole.method, whole.path, whole.body) == ("POST", "/v1/x", b"hello")
    assert whole.headers["x-thing"] == "one"
    for cut in range(1, len(raw)):
        assert read_all(raw[:cut], raw[cut:]) == [whole]
    assert read_all(*(raw[i : i + 1] for i in range(len(raw)))) == [whole]


def test_pipelined_requests_come_in_order() -> None:
    bare = b"GET /health HTTP/1.1\r\n\r\n"
    paths = [request.path for request in read_all(LENGTH + bare + CHUNKED + bare)]
    assert paths == ["/v1/x", "/health", "/v1/x", "/health"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"G=T / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000, 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * (1 << 20), 431),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"b" * (1 << 20), 431),
    ],
)
def test_malformed_request_is_refused(raw: bytes, status: int) -> None:
    reader = RequestReader()
    reader.feed(raw)
    with pytest.raises(MalformedRequest) as refused:
        reader.next_request()
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: Close\r\n", False),
        ("1.1", "Connection: keep-alive\r\n", True),
        ("1.0", "", False),
        ("1.0", "Connection: keep-alive\r\n", False),
    ],
)
def test_connection_is_kept_as_the_client_asks(version: str, connection: str, keeps: bool) -> None:
    (request,) = read_all(f"GET / HTTP/{version}\r\n{connection}\r\n".encode())
    assert request.keep_alive is keeps


def test_continue_is_wanted_once_and_only_before_the_body() -> None:
    reader = RequestReader()
    assert not reader.wants_continue()
    reader.feed(HEAD + b"Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n")
    assert reader.next_request() is None
    assert reader.wants_continue()
    assert not reader.wants_continue()
    reader.feed(b"hello")
    assert reader.next_request() is not None
    assert not reader.wants_continue()


def test_reply_has_the_fields_of_the_engines_server() -> None:
    raw = Reply(200, b"{}").encode(now=NOW, keep_alive=True)
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert body == b"{}"
    assert lines[:2] == ["HTTP/1.1 200 OK", "date: Sun, 29 Nov 2026 11:26:45 GMT"]
    assert [line.partition(":")[0] for line in lines[2:]] == [
        "server",
        "content-length",
        "content-type",
        "vary",
    ]


def test_reply_without_a_body_has_no_content_type() -> None:
    assert b"content-type" not in Reply(200).encode(now=NOW, keep_alive=True)
    assert b"content-length: 0\r\n" in Reply(200).encode(now=NOW, keep_alive=True)


def test_closing_and_wrong_methods_are_said_in_the_head() -> None:
    raw = Reply(405, b"{}", allow="POST").encode(now=NOW, keep_alive=False, head_only=True)
    assert b"\r\nallow: POST\r\n" in raw
    assert b"\r\nconnection: close\r\n" in raw
    assert raw.endswith(b"\r\n\r\n")
    assert b"content-length: 2\r\n" in raw


@pytest.mark.parametrize("chunked", [True, False])
def test_stream_head_names_its_framing(chunked: bool) -> None:
    head = stream_head(now=NOW, keep_alive=chunked, chunked=chunked)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert re.search(rb"\r\ncontent-type: text/event-stream; charset=utf-8\r\n", head)
    assert (b"transfer-encoding: chunked" in head) is chunked
    assert b"content-length" not in head
