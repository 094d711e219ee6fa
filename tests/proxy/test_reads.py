"""The reads of one connection, stream after stream. What becomes of a stream's tokens: `test_event_relay`."""

import weakref
from typing import Any

import pytest

from replicarouter.cells import Histogram
from replicarouter.protocol.framing import Chunked
from replicarouter.proxy.observe import Observer
from replicarouter.proxy.reads import Path, Reads, reads_of
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.message import LAST_CHUNK, chunk
from tests.scene import HandClock, an_exchange

TOKEN = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"some words of an answer"}}]}\n\n')


class Connection:
    """Takes what belongs to no stream."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.taken: list[bytes] = []
        self.begins: Any = None

    def take(self, data: bytes) -> None:
        if self.begins is not None:
            self.stream, self.begins = self.begins, None
        if data:
            self.taken.append(data)


class Stream:
    """Sends its tokens into a list, each as far as it has `room`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.chunks = Chunked()
        self.observer = Observer(an_exchange(replica="a", model="m1"), HandClock(), Metrics(), stream=True)
        self.sent: list[bytes] = []
        self.fed: list[bytes] = []
        self.later: list[bytes] = []
        self.room = 1 << 20
        self.expected: set[str] = set()
        self.looked: list[int] = []

    def path(self) -> Path:
        observer = self.observer
        return Path(
            observer,
            observer.exchange,
            self.chunks,
            lambda: 0,
            self.send,
            observer.clock,
            Histogram((1.0,)),
            self.expected,
            self.look,
        )

    def look(self) -> None:
        self.looked.append(len(self.sent))

    def send(self, data: bytes) -> int:
        self.sent.append(data[: self.room])
        return min(len(data), self.room)

    def take(self, data: bytes) -> None:
        if not data:
            return
        self.fed.append(data)
        self.observer.chunk(data)
        if self.chunks.feed(data) >= 0:
            self.connection.stream = None

    def write_later(self, rest: bytes) -> None:
        self.later.append(rest)


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def reads(connection: Connection) -> Reads:
    return reads_of(connection)


def streaming(connection: Connection, reads: Reads) -> Stream:
    """One whose first content has come."""
    stream = Stream(connection)
    connection.stream = stream
    reads.send(b"")
    reads.send(TOKEN)
    assert stream.fed == [TOKEN]
    return stream


def test_all_is_taken_that_belongs_to_no_stream(connection: Connection, reads: Reads) -> None:
    for data in (b"head", TOKEN, LAST_CHUNK):
        reads.send(data)
    assert connection.taken == [b"head", TOKEN, LAST_CHUNK]


def test_a_stream_that_begins_with_a_read_has_the_next(connection: Connection, reads: Reads) -> None:
    stream = Stream(connection)
    connection.begins = stream
    reads.send(b"head")
    reads.send(TOKEN)
    reads.send(TOKEN)
    assert connection.taken == [b"head"]
    assert (stream.fed, stream.sent) == ([TOKEN], [TOKEN])


def test_one_stream_follows_the_other(connection: Connection, reads: Reads) -> None:
    for turn in range(1, 4):
        stream = streaming(connection, reads)
        for data in (TOKEN, TOKEN, LAST_CHUNK, b"head"):
            reads.send(data)
        assert stream.sent == [TOKEN] * 2
        assert stream.fed == [TOKEN, LAST_CHUNK]
        assert connection.taken == [b"head"] * turn


def test_behind_each_token_it_is_looked_for_who_is_expected(connection: Connection, reads: Reads) -> None:
    stream = streaming(connection, reads)
    for expected in ((), ("one", "other"), ("other",), ()):
        stream.expected.clear()
        stream.expected.update(expected)
        for _ in range(2):
            reads.send(TOKEN)
    assert stream.looked == [3, 4, 5, 6]


def test_of_a_stream_that_has_ended_nothing_is_kept(connection: Connection, reads: Reads) -> None:
    stream = weakref.ref(streaming(connection, reads))
    for data in (TOKEN, TOKEN, TOKEN, TOKEN, LAST_CHUNK):
        reads.send(data)
    assert stream() is None
    assert reads.gi_frame is not None
    assert [one for one in reads.gi_frame.f_locals.values() if isinstance(one, bytes) and one] == []


def test_what_it_keeps_is_known_after_a_read_of_nothing(connection: Connection, reads: Reads) -> None:
    stream = streaming(connection, reads)
    for _ in range(3):
        reads.send(TOKEN)
    exchange = stream.observer.exchange
    assert exchange.bytes_out == len(TOKEN)
    for _ in range(2):
        reads.send(b"")
        assert exchange.bytes_out == 4 * len(TOKEN)
        assert stream.observer.fourth == TOKEN
    reads.send(TOKEN)
    assert stream.sent == [TOKEN] * 4


def test_a_read_of_nothing_is_no_read(connection: Connection, reads: Reads) -> None:
    reads.send(b"")
    stream = Stream(connection)
    connection.stream = stream
    reads.send(b"")
    assert (connection.taken, stream.fed) == ([], [])


def test_a_stream_that_was_stopped_gets_nothing_more(connection: Connection, reads: Reads) -> None:
    stream = streaming(connection, reads)
    reads.send(TOKEN)
    connection.stream = None
    reads.send(b"")
    assert stream.observer.exchange.bytes_out == 2 * len(TOKEN)
    reads.send(TOKEN)
    assert (stream.sent, connection.taken) == ([TOKEN], [TOKEN])


def test_what_a_socket_does_not_take_is_written_later(connection: Connection, reads: Reads) -> None:
    stream = streaming(connection, reads)
    stream.room = 10
    reads.send(TOKEN)
    assert (stream.sent, stream.later) == ([TOKEN[:10]], [TOKEN[10:]])
    assert stream.observer.exchange.bytes_out == 2 * len(TOKEN)
