"""What is written out in one step does the same as the steps that it stands for."""

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicarouter.exchange import Exchange
from replicarouter.protocol.response_head import parse_head
from replicarouter.proxy.event_relay import EventRelay, relay_of
from replicarouter.proxy.lookout import Lookout
from replicarouter.proxy.observe import Observer, StoredResponseObserver
from replicarouter.proxy.reads import Stream, reads_of
from replicarouter.proxy.relay import Relay
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.message import LAST_CHUNK, chunk
from tests.scene import HandClock, an_exchange

HEAD = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked")
PLAIN = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked")
TOKEN = '{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"%s"}}]}'


FLUSHED = 0.7
LOOKED_AT = 0.2

Make = Callable[..., "Side"]
Both = Callable[..., "tuple[Side, Side]"]


def event(text: str) -> bytes:
    return chunk(f"data: {text}\n\n".encode())


class Protocol:
    """Stands where the replica's connection does."""

    def __init__(self) -> None:
        self.receiver: Any = None
        self.stream: Stream | None = None
        self.relay: Relay
        self.reads = reads_of(self)

    def take(self, data: bytes) -> None:
        if data:
            self.relay.feed(data)

    def settle(self) -> None:
        if self.reads.gi_suspended:
            self.reads.send(b"")

    def acknowledge_in_pairs(self) -> None:
        """Nothing to be seen here."""


class Transport:
    """Stands where the client's transport does: what is written waits for `flush`, as it does for the end of
    the loop's turn."""

    def __init__(self, under: socket.socket) -> None:
        self.under = under
        self.waiting = b""
        self.closed = False
        self.writes = 0

    def write(self, data: bytes) -> None:
        if self.closed:
            raise RuntimeError("closed")
        self.waiting += data
        self.writes += 1

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def flush(self) -> None:
        with suppress(BlockingIOError):
            while self.waiting:
                self.waiting = self.waiting[self.under.send(self.waiting) :]

    def pause_reading(self) -> None:
        """Nothing comes here by itself."""


@dataclass
class Side:
    """One relay with all that it writes and notes."""

    kind: type[Relay]
    rest: bytes = b""
    written: bytes = b""
    clock: HandClock = field(default_factory=HandClock)
    metrics: Metrics = field(default_factory=Metrics)
    exchange: Exchange = field(default_factory=lambda: an_exchange(replica="a", model="m1", head_at=999.0))
    outcome: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.protocol = Protocol()
        router, self.client = socket.socketpair()
        for end in (router, self.client):
            end.setblocking(False)
        self.transport = Transport(router)
        self.connection = SimpleNamespace(
            transport=self.transport,
            full=False,
            on_writable=None,
            straight=lambda: router,
            lookout=Lookout(self.clock),
            streamed=False,
        )
        link = SimpleNamespace(protocol=self.protocol, transport=self.transport)
        caller = SimpleNamespace(connection=self.connection, modern=True)
        done = SimpleNamespace(
            done=lambda: bool(self.outcome), set_result=self.outcome.append, set_exception=self.outcome.append
        )
        self.observer = Observer(self.exchange, self.clock, self.metrics, stream=True)
        parts = (cast(Any, link), cast(Any, caller), HEAD, self.observer, cast(Any, done))
        self.relay = self.kind(*parts, *([router] if self.kind is EventRelay else []))
        self.protocol.relay = self.relay
        self.relay.begin(b"head", self.rest)

    def feed(self, data: bytes, *, flush: bool = True) -> None:
        self.clock.move(0.0123)
        if not self.outcome:
            self.protocol.reads.send(data)
        if flush:
            self.transport.flush()
        with suppress(BlockingIOError):
            while got := self.client.recv(1 << 16):
                self.written += got

    def seen(self) -> dict[str, Any]:
        self.exchange.refresh()
        gaps = {labels: (list(one.counts), one.total) for labels, one in self.metrics.gaps}
        fields = (
            "bytes_out",
            "last_byte_at",
            "commented_at",
            "first_content_at",
            "outcome",
            "completion_tokens",
        )
        return {
            "written": self.written + self.transport.waiting,
            "gaps": gaps,
            "exchange": [getattr(self.exchange, name) for name in fields],
            "ended": [repr(one) for one in self.outcome],
            "boundary": self.relay.at_event_boundary,
            "held": self.relay.held,
            "reusable": self.relay.reusable,
        }


@pytest.fixture
def side() -> Iterator[Make]:
    """Make a relay with its surroundings; `rest` comes with the head."""
    with ExitStack() as ends:

        def make(kind: type[Relay], rest: bytes = b"") -> Side:
            made = Side(kind, rest)
            ends.callback(made.transport.under.close)
            ends.callback(made.client.close)
            return made

        yield make


@pytest.fixture
def both(side: Make) -> Both:
    """Feed the same to a relay of each kind; after each read, or now and then, all is seen alike."""

    def feed(reads: list[bytes], chance: random.Random | None = None) -> tuple[Side, Side]:
        ordinary, written_out = side(Relay), side(EventRelay)
        for number, data in enumerate(reads):
            for each in (ordinary, written_out):
                each.feed(data, flush=chance is None or chance.random() < FLUSHED)
            if chance is None or chance.random() < LOOKED_AT or number == len(reads) - 1:
                assert written_out.seen() == ordinary.seen(), data
        return ordinary, written_out

    return feed


STREAM = (
    event('{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}')
    + b"".join(event(TOKEN % f"t{number % 7}") for number in range(40))
    + chunk(b": a comment\n\n")
    + b"".join(event(TOKEN % f"u{number % 3}") for number in range(10))
    + event('{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":50,"total_tokens":55}}')
    + event("[DONE]")
    + LAST_CHUNK
)


def in_chunks(stream: bytes) -> list[bytes]:
    reads = []
    while stream:
        end = stream.index(b"\r\n")
        size = end + 4 + int(stream[:end], 16)
        reads.append(stream[:size])
        stream = stream[size:]
    return reads


def test_a_stream_of_one_chunk_a_read_is_seen_alike(both: Both) -> None:
    ordinary, written_out = both(in_chunks(STREAM))
    assert written_out.transport.writes < ordinary.transport.writes / 4
    assert written_out.written == b"head" + STREAM
    assert written_out.exchange.completion_tokens == 50
    assert written_out.outcome == [None]


@pytest.mark.parametrize("seed", range(30))
def test_a_stream_that_is_cut_anywhere_is_seen_alike(seed: int, both: Both) -> None:
    chance = random.Random(seed)
    ends = list(accumulate(map(len, in_chunks(STREAM))))
    reads, at = [], 0
    while at < len(STREAM):
        next_end = next(end for end in ends if end > at)
        to = next_end if chance.random() < 0.7 else min(len(STREAM), at + chance.randint(1, 300))
        reads.append(STREAM[at:to])
        at = to
    both(reads, chance)


def test_broken_framing_is_found_behind_the_beginning(both: Both) -> None:
    reads = in_chunks(STREAM)[:10]
    same_length = reads[-1][:-2] + b"xx"
    both([*reads, same_length])


def test_a_client_that_is_full_holds_the_replica_up(both: Both) -> None:
    sides = both(in_chunks(STREAM)[:10])
    for side in sides:
        side.connection.full = True
        side.transport.waiting = b"-"
        side.feed(in_chunks(STREAM)[9])
        assert side.relay.held


def test_a_client_that_has_left_ends_it(both: Both) -> None:
    sides = both(in_chunks(STREAM)[:10])
    for side in sides:
        side.transport.closed = True
        side.transport.under.detach()
        side.feed(in_chunks(STREAM)[9])
        assert len(side.outcome) == 1


def test_what_the_client_does_not_take_at_once_waits_in_its_transport(both: Both) -> None:
    ordinary, written_out = both(in_chunks(STREAM)[:10])
    router = written_out.transport.under
    router.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    token = in_chunks(STREAM)[9]
    fed = 0
    while not written_out.transport.waiting:
        written_out.protocol.reads.send(token)
        fed += 1
    assert not ordinary.transport.waiting
    assert fed > 1
    written_out.connection.full = True
    written_out.feed(token)
    assert written_out.relay.held
    while written_out.transport.waiting:
        written_out.feed(b"")
    assert written_out.written == ordinary.written + token * (fed + 1)


def test_what_comes_after_a_pause_of_the_client_is_no_late_token(both: Both) -> None:
    for side in both(in_chunks(STREAM)[:10]):
        side.connection.full = True
        side.transport.waiting = b"-"
        side.feed(in_chunks(STREAM)[9])
        side.clock.move(100.0)
        side.connection.full = False
        side.protocol.receiver = None
        side.connection.on_writable()
        side.feed(in_chunks(STREAM)[9])
        assert side.seen()["gaps"]["a",][1] < 1.0


def test_a_comment_of_ours_stands_between_two_tokens(both: Both) -> None:
    written = []
    for side in both(in_chunks(STREAM)[:10]):
        assert side.relay.insert(b": ours\n\n")
        side.feed(in_chunks(STREAM)[9], flush=False)
        side.feed(in_chunks(STREAM)[9])
        written.append(side.written)
        assert chunk(b": ours\n\n") + in_chunks(STREAM)[9] * 2 in side.written
    assert written[0] == written[1]


def test_tokens_pass_it_by_until_it_has_ended(side: Make) -> None:
    ours = side(EventRelay)
    assert ours.protocol.stream is cast(Any, ours.relay)
    for data in in_chunks(STREAM):
        ours.feed(data)
    assert ours.protocol.stream is None
    assert ours.exchange.on_refresh is None


def test_the_end_of_an_answer_is_written_with_the_others_of_the_turn(side: Make) -> None:
    """Who has it may look at counts: they must not come much later."""
    ours = side(EventRelay)
    for data in in_chunks(STREAM):
        ours.feed(data, flush=False)
    assert ours.transport.waiting.endswith(LAST_CHUNK)
    whole = side(EventRelay, rest=STREAM)
    assert whole.outcome == [None]
    assert whole.transport.waiting == b"head" + STREAM


def test_its_client_may_ask_again_when_it_has_ended(side: Make) -> None:
    ours = side(EventRelay)
    for data in in_chunks(STREAM):
        assert not ours.connection.streamed
        ours.feed(data)
    assert ours.connection.streamed


def test_nothing_is_relayed_behind_the_end(both: Both) -> None:
    _, side = both(in_chunks(STREAM)[:10])
    side.relay.stop()
    assert side.protocol.stream is None
    assert side.exchange.bytes_out == side.seen()["exchange"][0] == len(b"".join(in_chunks(STREAM)[:10]))
    assert side.exchange.on_refresh is None


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("head", [HEAD, PLAIN])
def test_only_streams_of_events_to_clients_that_take_chunks_are_so(
    head: Any, modern: bool, side: Make
) -> None:
    ours = side(Relay)
    caller = SimpleNamespace(connection=ours.connection, modern=modern)
    secure = SimpleNamespace(connection=SimpleNamespace(**vars(ours.connection)), modern=modern)
    secure.connection.straight = lambda: None
    link = SimpleNamespace(protocol=ours.protocol, transport=ours.transport)
    parts = (cast(Any, link), cast(Any, caller), head)
    relay = relay_of(*parts, ours.observer, cast(Any, None))
    assert isinstance(relay, EventRelay) is (head is HEAD and modern)
    through_tls = (parts[0], cast(Any, secure), head, ours.observer, cast(Any, None))
    assert not isinstance(relay_of(*through_tls), EventRelay)
    watching = StoredResponseObserver(ours.exchange, ours.clock, ours.metrics, stream=True, learn=print)
    assert not isinstance(relay_of(*parts, watching, cast(Any, None)), EventRelay)
