"""Answers that are kept back while it is decided who gets the request."""

import pytest

from replicarouter.protocol.framing import BadFraming
from replicarouter.protocol.refusal import MOST_HELD, Meaning, Refusal
from replicarouter.protocol.response_head import parse_head
from replicarouter.proxy.held import HeldAnswer


def held(*fields: str, status: int = 503) -> HeldAnswer:
    lines = [f"HTTP/1.1 {status} Refused", *fields]
    return HeldAnswer(parse_head("\r\n".join(lines).encode()))


def test_a_body_of_declared_length_is_complete_at_its_end() -> None:
    answer = held("Content-Length: 4")
    assert not answer.feed(b"bu")
    assert answer.feed(b"sy")
    assert answer.content() == b"busy"
    assert answer.read() == Refusal(Meaning.BUSY)
    assert answer.reusable


def test_a_chunked_body_is_kept_in_its_framing_and_read_without() -> None:
    answer = held("Transfer-Encoding: chunked")
    whole = b"2\r\nlo\r\n5\r\nading\r\n0\r\n\r\n"
    assert [answer.feed(whole[at : at + 1]) for at in range(len(whole))].count(True) == 1
    assert answer.data == whole
    assert answer.content() == b"loading"
    assert answer.read() == Refusal(Meaning.LOADING)
    assert answer.reusable


def test_an_answer_without_a_body_is_complete_at_once() -> None:
    assert held("Content-Length: 0").feed(b"")


def test_bytes_behind_the_end_are_not_part_of_it_and_spoil_the_connection() -> None:
    answer = held("Content-Length: 4")
    assert answer.feed(b"busyHTTP/1.1 200 OK\r\n")
    assert answer.data == b"busy"
    assert not answer.reusable


def test_a_body_that_ends_with_the_connection_says_so() -> None:
    answer = held()
    assert not answer.feed(b"busy")
    assert answer.ends_with_connection
    assert not answer.reusable


def test_a_connection_that_its_replica_closes_is_not_reused() -> None:
    answer = held("Content-Length: 0", "Connection: close")
    assert answer.feed(b"")
    assert not answer.reusable


def test_more_than_a_refusal_takes_is_too_long() -> None:
    answer = held("Content-Length: 1000000")
    assert not answer.feed(b"x" * MOST_HELD)
    assert not answer.too_long
    answer.feed(b"x")
    assert answer.too_long


def test_broken_framing_is_told() -> None:
    with pytest.raises(BadFraming):
        held("Transfer-Encoding: chunked").feed(b"zz\r\n")
