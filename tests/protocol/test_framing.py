"""Where bodies end, however the network cuts them."""

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from replicarouter.protocol.framing import (
    MAX_LINE,
    MAX_TRAILERS,
    BadFraming,
    Chunked,
    Dechunker,
    Framing,
    Length,
    NoBody,
    UntilClose,
)

CHUNKED = {
    "empty": b"0\r\n\r\n",
    "one chunk": b"5\r\nhello\r\n0\r\n\r\n",
    "two chunks": b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
    "sizes in hex of either case": b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "leading zeros": b"0005\r\nhello\r\n000\r\n\r\n",
    "data that looks like framing": b"9\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n",
    "extensions": b'5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n',
    "blanks behind a size": b"5 \t\r\nhello\r\n0 \r\n\r\n",
    "a trailer": b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n",
    "two trailers": b"2\r\nhi\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
}

MALFORMED = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a size that is no number": b"zz\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a size with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a blank before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "a size of sixteen digits": b"0000000000000005\r\nhello\r\n0\r\n\r\n",
    "an extension without its semicolon": b"5 a=b\r\nhello\r\n0\r\n\r\n",
    "a bare line feed behind the size": b"5\nhello\r\n0\r\n\r\n",
    "a bare line feed in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "a bare carriage return in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "a NUL in an extension": b"5;a\0\r\nhello\r\n0\r\n\r\n",
    "more data than the size says": b"4\r\nhello\r\n0\r\n\r\n",
    "less data than the size says": b"6\r\nhello\r\n0\r\n\r\n",
    "a bare line feed behind the data": b"5\r\nhello\n0\r\n\r\n",
    "a bare carriage return behind the data": b"5\r\nhello\r0\r\n\r\n",
}


def feed(walker: Framing, pieces: list[bytes]) -> int:
    """Feed the pieces; the position of the body's end in all of them together, or -1."""
    before = 0
    for piece in pieces:
        end = walker.feed(piece)
        if end >= 0:
            return before + end
        before += len(piece)
    return -1


def cuts(body: bytes, most: int) -> list[list[bytes]]:
    """Every way to cut `body` into at most `most` + 1 pieces, and bytewise."""
    ways = [[body[at : at + 1] for at in range(len(body))]]
    for count in range(most + 1):
        for places in combinations(range(1, len(body)), count):
            edges = [0, *places, len(body)]
            ways.append([body[a:b] for a, b in pairwise(edges)])
    return ways


@pytest.mark.parametrize("name", CHUNKED)
@pytest.mark.parametrize("following", [b"", b"HTTP/1.1 200 OK"])
def test_a_chunked_body_ends_at_the_same_byte_however_it_is_cut(name: str, following: bytes) -> None:
    body = CHUNKED[name]
    for pieces in cuts(body + following, 2):
        assert feed(Chunked(), pieces) == len(body), pieces


@pytest.mark.parametrize("name", CHUNKED)
def test_a_chunked_body_without_its_last_byte_goes_on(name: str) -> None:
    for pieces in cuts(CHUNKED[name][:-1], 1):
        assert feed(Chunked(), pieces) == -1, pieces


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_chunked_body_is_refused_however_it_is_cut(name: str) -> None:
    for pieces in cuts(MALFORMED[name], 1):
        with pytest.raises(BadFraming):
            feed(Chunked(), pieces)


LONG_LINE = b"5;" + b"e" * 3 * MAX_LINE + b"\r\nhello\r\n0\r\n\r\n"
LONG_TRAILERS = b"0\r\n" + b"A: b\r\n" * MAX_TRAILERS + b"\r\n"
ENDLESS = {
    "a size": b"1" * 2 * MAX_LINE,
    "an extension": LONG_LINE,
    "trailers": LONG_TRAILERS,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_line_without_an_end_in_sight_is_refused(name: str) -> None:
    body = ENDLESS[name]
    with pytest.raises(BadFraming):
        feed(Chunked(), [body[at : at + 100] for at in range(0, len(body), 100)])


@pytest.mark.parametrize("body", [LONG_LINE, LONG_TRAILERS], ids=["extension", "trailers"])
def test_a_limit_holds_for_what_comes_in_one_read(body: bytes) -> None:
    with pytest.raises(BadFraming):
        feed(Chunked(), [body])


SEEN_BEFORE = {
    "the chunk again": (b"5\r\nhello\r\n", -1),
    "cut, though it ends like a chunk": (b"5\r\nhe\r\n", -1),
    "with the beginning of another": (b"5\r\nhello\r\n3\r\n", -1),
    "with the end of the body": (b"5\r\nhello\r\n0\r\n\r\n", 15),
}


@pytest.mark.parametrize("name", SEEN_BEFORE)
def test_a_read_that_begins_as_one_before_is_told_from_it(name: str) -> None:
    piece, end = SEEN_BEFORE[name]
    assert feed(Chunked(), [b"5\r\nhello\r\n"] * 2) == -1
    walker = Chunked()
    assert walker.feed(piece) == end
    assert walker.at_boundary() == piece.endswith(b"hello\r\n")


def test_two_chunks_in_one_read_do_not_stand_for_one() -> None:
    assert feed(Chunked(), [b"4\r\nfour\r\n1\r\na\r\n"] * 2) == -1
    walker = Chunked()
    assert walker.feed(b"4\r\nfour\r\n8\r\nx\r\n") == -1
    assert not walker.at_boundary()


def test_a_chunk_seen_before_is_no_excuse_within_another() -> None:
    walker = Chunked()
    assert feed(walker, [b"5\r\nhello\r\n", b"a\r\n", b"5\r\nhello\r\n"]) == -1
    with pytest.raises(BadFraming):
        walker.feed(b"5\r\nhello\r\n")
    with pytest.raises(BadFraming):
        feed(Chunked(), [b"5\r\nhello\r\n", b"5\r\nhellooo"])


def test_bytes_of_our_own_fit_only_between_chunks() -> None:
    body = b"5\r\nhello\r\n3;e\r\nabc\r\n0\r\nA: b\r\n\r\n"
    boundaries = {0, 10, 20}
    walker = Chunked()
    assert walker.at_boundary()
    for position in range(1, len(body)):
        walker.feed(body[position - 1 : position])
        assert walker.at_boundary() == (position in boundaries), position


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_declared_length_ends_the_body_there(length: int) -> None:
    whole = b"x" * length + b"next"
    for pieces in cuts(whole, 2):
        assert feed(Length(length), pieces) == length, pieces


def test_a_body_shorter_than_its_length_goes_on() -> None:
    assert feed(Length(5), [b"12", b"34"]) == -1


def test_a_body_without_framing_goes_on_until_the_connection_ends() -> None:
    walker = UntilClose()
    assert feed(walker, [b"0\r\n\r\n", b"more"]) == -1
    assert walker.ends_with_connection


def test_an_answer_without_a_body_ends_before_the_first_byte() -> None:
    assert NoBody().feed(b"HTTP/1.1 200 OK") == 0


def test_only_an_unframed_body_ends_with_its_connection() -> None:
    walkers: list[Framing] = [NoBody(), Length(5), Chunked(), UntilClose()]
    assert [walker.ends_with_connection for walker in walkers] == [False, False, False, True]


def test_no_bytes_of_our_own_fit_into_a_counted_or_missing_body() -> None:
    counted = Length(5)
    counted.feed(b"12")
    assert not counted.at_boundary()
    assert not NoBody().at_boundary()
    assert UntilClose().at_boundary()


@pytest.mark.parametrize("name", CHUNKED)
def test_content_comes_out_whole_however_the_body_is_cut(name: str) -> None:
    body = CHUNKED[name]
    whole = Dechunker().feed(body)
    for pieces in cuts(body, 2):
        dechunker = Dechunker()
        assert b"".join(map(dechunker.feed, pieces)) == whole, pieces


def test_content_is_what_the_chunks_carry() -> None:
    assert Dechunker().feed(CHUNKED["two chunks"]) == b"abc"
    assert Dechunker().feed(CHUNKED["extensions"]) == b"hello"
    assert Dechunker().feed(CHUNKED["data that looks like framing"]) == b"\r\n0\r\n\r\n\r\n"


def test_content_of_a_large_chunk_is_not_held_back() -> None:
    dechunker = Dechunker()
    assert dechunker.feed(b"100000\r\n" + b"x" * 65536) == b"x" * 65536


RECORDED = sorted(path.name for path in (Path(__file__).parent / "data").glob("*stream*.http"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_ends_where_it_ended(name: str) -> None:
    raw = (Path(__file__).parent / "data" / name).read_bytes()
    _, _, body = raw.partition(b"\r\n\r\n")
    assert feed(Chunked(), [body]) == len(body)
    assert feed(Chunked(), [body[at : at + 7] for at in range(0, len(body), 7)]) == len(body)
