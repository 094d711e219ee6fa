"""What a replica's connection reads: the tokens of a stream in a loop of their own, all else step by step."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator
from types import GeneratorType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, cast

from replicarouter.cells import Histogram
from replicarouter.clock import Clock
from replicarouter.exchange import Exchange
from replicarouter.protocol.framing import LINE, WHOLE, Chunked

if TYPE_CHECKING:
    from replicarouter.proxy.observe import Observer

_size_of = WHOLE.get

Reads: TypeAlias = "GeneratorType[None, bytes, None]"
"""Takes each read, by `send`. A read of nothing has it look whether there is a stream, or another one, and
tell the exchange and the observer of that what only it knows."""


class Path(NamedTuple):
    """Where the tokens of a stream go: who watches them for which exchange, what walks over their framing,
    how many bytes wait in front of them, and who sends them past those; what times them, into what; who may
    be waited for, and what looks for them then."""

    observer: "Observer"
    exchange: Exchange
    chunks: Chunked
    held_back: Callable[[], int]
    send: Callable[[bytes], int]
    clock: Clock
    gaps: Histogram
    expected: Collection[object]
    look: Callable[[], None]


class Stream(Protocol):
    """Who relays a stream of which most reads are one token."""

    def path(self) -> Path:
        """The way of its tokens."""

    def take(self, data: bytes) -> None:
        """A read that is not just a token, or of nothing."""

    def write_later(self, rest: bytes) -> None:
        """What the socket did not take of one."""


class Connection(Protocol):
    """Who has the reads taken: `stream` while an answer streams."""

    stream: Stream | None

    def take(self, data: bytes) -> None:
        """A read that belongs to no stream, or to the beginning of one, or is of nothing."""


def reads_of(connection: Connection) -> Reads:
    """The reads of a connection, for all its life, ready for the first of them.

    Most reads of a stream are one whole chunk behind the first content. For these it does in one place what
    `Relay.feed`, `Chunked.feed` and `Observer.chunk` do together. With hundreds of streams hardly anything of
    one is in the processor's caches when its next token comes, and each object that is touched costs about as
    much as ten steps of the interpreter. So what changes with every token is kept in the generator's frame,
    and the exchange and the observer get it when they are asked (`Exchange.refresh`) and whenever a read goes
    the ordinary way.
    """
    # What makes it is a function with `yield`; of those the type says what may be asked of one that waits.
    reads = cast("Reads", _take_reads(connection))
    next(reads)
    return reads


def _is_whole(data: bytes) -> bool:
    """Whether a read is a chunk and nothing else."""
    return _size_of(data[:LINE]) == len(data) and data[-2:] == b"\r\n"


def _take_reads(connection: Connection) -> Generator[None, bytes, None]:
    while True:
        stream = connection.stream
        if stream is None:
            data = yield
            connection.take(data)
            continue
        # In the frame it stands side by side what every token needs.
        observer, exchange, chunks, held_back, send, clock, gaps, expected, look = stream.path()
        bounds, counts, sums = gaps.bounds, gaps.counts, gaps.sums
        while connection.stream is stream:
            data = yield
            if not _is_whole(data) or not chunks.between or not observer.settled or held_back():
                stream.take(data)
                continue
            last, second, third = observer.last, observer.second, observer.third
            last_at = exchange.last_byte_at
            size, passed = len(data), 0
            whole = True
            while whole:
                fourth = third
                third = second
                second = last
                last = data
                try:
                    sent = send(data)
                except OSError:
                    sent = 0
                now = clock()
                gap = now - last_at
                counts[bisect_left(bounds, gap)] += 1
                sums[0] += gap
                last_at = now
                passed += size
                if sent != size:
                    stream.write_later(data[sent:])
                    data = b""
                    break
                if expected:
                    look()
                data = yield
                size = len(data)
                whole = _size_of(data[:LINE]) == size and data[-2:] == b"\r\n"
            observer.last, observer.second, observer.third, observer.fourth = last, second, third, fourth
            exchange.last_byte_at = last_at
            exchange.bytes_out += passed
            stream.take(data)
        # They are nobody's any more, and the next stream of this connection may be far away.
        data = last = second = third = fourth = b""
        del stream, observer, exchange, chunks, held_back, send, expected, look
