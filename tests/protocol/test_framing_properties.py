"""The walkers against a second decoder, written byte by byte from RFC 9112 section 7.1 for this test."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replicarouter.protocol.framing import BadFraming, Chunked, Dechunker, Framing, Length, UntilClose
from tests.properties import examples

TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS = b"0123456789abcdefABCDEF"
CR, LF = b"\r\n"
MOST_DIGITS = 15
"""Of a chunk size; the RFC leaves the bound to the recipient."""

SIZE_LINE = re.compile(rb"[0-9a-fA-F]{1,15}[ \t]*(;[^\r\n\0]*)?")
TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


@dataclass(slots=True)
class Reference:
    """A chunked decoder that takes one byte at a time. `end` is the position behind the body, or -1."""

    end: int = -1
    broken: bool = False
    content: bytearray = field(default_factory=bytearray)
    _seen: int = 0
    _state: str = "size line"
    _line: bytearray = field(default_factory=bytearray)
    _left: int = 0

    def feed(self, data: bytes) -> None:
        for byte in data:
            if self.broken or self.end >= 0:
                return
            self._seen += 1
            self._step(byte)

    @property
    def at_boundary(self) -> bool:
        """Whether a chunk of one's own could go here: nothing of the next size line has been seen."""
        return self._state == "size line" and not self._line and not self.broken

    def _step(self, byte: int) -> None:
        if self._state == "data":
            self.content.append(byte)
            self._left -= 1
            if not self._left:
                self._state = "data CR"
        elif self._state == "data CR":
            self.broken = byte != CR
            self._state = "data LF"
        elif self._state == "data LF":
            self.broken = byte != LF
            self._state = "size line"
        else:
            self._step_in_line(byte)

    def _step_in_line(self, byte: int) -> None:
        self._line.append(byte)
        if byte == LF:
            line = bytes(self._line)
            self._line.clear()
            if not line.endswith(b"\r\n"):
                self.broken = True
            else:
                self._end_line(line[:-2])

    def _end_line(self, line: bytes) -> None:
        if self._state == "size line":
            if SIZE_LINE.fullmatch(line) is None:
                self.broken = True
                return
            self._left = int(re.match(rb"[0-9a-fA-F]+", line)[0], 16)  # type: ignore[index]
            self._state = "data" if self._left else "trailers"
        elif not line:
            self.end = self._seen
        else:
            self.broken = TRAILER.fullmatch(line) is None


AWKWARD = st.sampled_from(
    [b"\r\n", b"\r", b"\n", b"0", b"0\r\n\r\n", b"5\r\nhello\r\n", b";", b"\0", b"\xff", b"data: x\n\n"]
)
CONTENT = st.lists(st.one_of(AWKWARD, st.binary(max_size=20)), min_size=1, max_size=4).map(b"".join)
CHUNK = CONTENT.filter(len)
EXTENSION_TEXT = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12
).map(lambda text: text.encode("latin-1"))
EXTENSION = st.one_of(
    st.just(b""), st.just(b" "), st.just(b"\t "), EXTENSION_TEXT.map(lambda text: b";" + text)
)
NAME = st.binary(min_size=1, max_size=6).map(lambda raw: bytes(TOKEN[byte % len(TOKEN)] for byte in raw))
TRAILERS = st.lists(
    st.tuples(NAME, EXTENSION_TEXT).map(lambda pair: pair[0] + b":" + pair[1] + b"\r\n"), max_size=3
).map(b"".join)


@st.composite
def size_lines(draw: st.DrawFn, size: int) -> bytes:
    digits = b"%x" % size
    if draw(st.booleans()):
        digits = digits.upper()
    zeros = draw(st.integers(0, MOST_DIGITS - len(digits)))
    return b"0" * zeros + digits + draw(EXTENSION) + b"\r\n"


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A well-formed chunked body and its content."""
    chunks = draw(st.lists(CHUNK, max_size=5))
    wire = [draw(size_lines(len(one))) + one + b"\r\n" for one in chunks]
    return b"".join(wire) + draw(size_lines(0)) + draw(TRAILERS) + b"\r\n", b"".join(chunks)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces, cut anywhere; sometimes bytewise, often in a line end."""
    how = draw(st.integers(0, 3))
    if how == 0:
        return [data[at : at + 1] for at in range(len(data))]
    places = draw(st.lists(st.integers(0, len(data)), max_size=6))
    if how == 1:
        places += [at for at in range(1, len(data)) if data[at] == LF]
    # A head may come alone, and so be followed by nothing; later reads hold something.
    edges = [0, *([0] if draw(st.booleans()) else []), *sorted({*places, len(data)} - {0})]
    return [data[a:b] for a, b in pairwise(edges)]


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """A chunked body with a few bytes changed, added, removed or doubled, or its end missing."""
    data, _ = draw(bodies())
    raw = bytearray(data)
    line_ends = [at for at, byte in enumerate(raw) if byte in (CR, LF)]
    if draw(st.booleans()):
        raw[draw(st.sampled_from(line_ends))] = draw(st.sampled_from(b"x\r\n \0"))
        return bytes(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        what = draw(st.sampled_from(["change", "add", "remove", "double", "truncate"]))
        piece = draw(st.one_of(AWKWARD, st.binary(min_size=1, max_size=2)))
        if what == "change":
            raw[at : at + len(piece)] = piece
        elif what == "add":
            raw[at:at] = piece
        elif what == "remove":
            del raw[at : at + draw(st.integers(1, 3))]
        elif what == "double":
            raw[at:at] = raw[at : at + draw(st.integers(1, 8))]
        else:
            del raw[at:]
    return bytes(raw)


def walk(walker: Framing, pieces: list[bytes]) -> int:
    """The position of the body's end in all pieces together, or -1; BadFraming passes."""
    before = 0
    for piece in pieces:
        end = walker.feed(piece)
        if end >= 0:
            return before + end
        before += len(piece)
    return -1


@examples(400)
@given(data=st.data(), made=bodies(), surplus=st.binary(max_size=12))
def test_a_well_formed_body_ends_at_its_last_byte(
    data: st.DataObject, made: tuple[bytes, bytes], surplus: bytes
) -> None:
    body, content = made
    reference = Reference()
    reference.feed(body + surplus)
    assert (reference.end, bytes(reference.content)) == (len(body), content)

    assert walk(Chunked(), data.draw(cut(body + surplus))) == len(body)


@examples(400)
@given(data=st.data(), raw=mutilated())
def test_both_decoders_agree_on_any_bytes(data: st.DataObject, raw: bytes) -> None:
    pieces = data.draw(cut(raw))
    reference = Reference()
    reference.feed(raw)
    walker = Chunked()
    try:
        end = walk(walker, pieces)
    except BadFraming:
        assert reference.broken
        return
    assert end == reference.end
    if reference.broken:
        # The line that is wrong has not come to its end yet; nothing can make it right.
        with pytest.raises(BadFraming):
            walk(walker, [b"\r\n\r\n", b"x" * 20_000])


@examples(400)
@given(data=st.data(), raw=st.one_of(bodies().map(lambda made: made[0]), mutilated()))
@example(data=None, raw=b"7\r\ndata: x\r\n")
def test_a_boundary_is_said_where_a_chunk_could_follow_and_nowhere_else(
    data: st.DataObject | None, raw: bytes
) -> None:
    pieces = [raw] if data is None else data.draw(cut(raw))
    reference, walker = Reference(), Chunked()
    assert walker.at_boundary()
    for piece in pieces:
        reference.feed(piece)
        try:
            if walker.feed(piece) >= 0:
                break
        except BadFraming:
            return
        if not reference.broken:
            assert walker.at_boundary() == reference.at_boundary
        elif walker.at_boundary():
            raise AssertionError("a boundary in broken framing")


@examples(300)
@given(data=st.data(), made=bodies())
def test_what_is_taken_out_of_its_chunks_is_the_content(
    data: st.DataObject, made: tuple[bytes, bytes]
) -> None:
    body, content = made
    dechunker = Dechunker()
    pieces = data.draw(cut(body))
    assert b"".join(dechunker.feed(piece) for piece in pieces) == content
    assert dechunker.feed(b"5\r\nhello\r\n") == b""


@examples(300)
@given(data=st.data(), made=bodies())
def test_content_leaves_its_chunks_as_soon_as_it_is_there(
    data: st.DataObject, made: tuple[bytes, bytes]
) -> None:
    body, _ = made
    reference, dechunker, got = Reference(), Dechunker(), b""
    for piece in data.draw(cut(body)):
        reference.feed(piece)
        got += dechunker.feed(piece)
        assert got == bytes(reference.content)


@examples(200)
@given(data=st.data(), body=st.binary(max_size=60), surplus=st.binary(max_size=12))
def test_a_declared_length_ends_at_its_last_byte(data: st.DataObject, body: bytes, surplus: bytes) -> None:
    walker = Length(len(body))
    # A length of zero is found with the head: nothing is fed before it.
    assert walk(walker, data.draw(cut(body + surplus)) or [b""]) == len(body)
    assert not walker.at_boundary()


@examples(200)
@given(data=st.data(), body=st.binary(min_size=1, max_size=60))
def test_a_length_that_is_not_reached_is_no_end(data: st.DataObject, body: bytes) -> None:
    assert walk(Length(len(body) + 1), data.draw(cut(body))) == -1


@examples(100)
@given(data=st.data(), body=st.binary(max_size=60))
def test_a_body_until_close_never_ends_by_itself(data: st.DataObject, body: bytes) -> None:
    walker = UntilClose()
    assert walk(walker, data.draw(cut(body))) == -1
    assert walker.ends_with_connection
    assert walker.at_boundary()
