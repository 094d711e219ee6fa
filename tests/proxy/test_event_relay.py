"""What is written out in one step does the same as the steps that it stands for."""

import random
from dataclasses import dataclass, field
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicarouter.exchange import Exchange
from replicarouter.protocol.response_head import parse_head
from replicarouter.proxy.event_relay import EventRelay, relay_of
from replicarouter.proxy.observe import Observer, StoredResponseObserver
from replicarouter.proxy.relay import Relay
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.message import LAST_CHUNK, chunk
from tests.scene import HandClock, an_exchange

HEAD = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked")
PLAIN = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked")
TOKEN = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'


def event(text: str) -> bytes:
    return chunk(f"data: {text}\n\n".encode())


class Protocol:
    """Stands where the replica's connection does."""

    def __init__(self) -> None:
        self.receiver: Any = None
        self.straight: Any = None

    def stream_to(self, receiver: Any) -> None:
        self.straight = receiver

    def acknowledge_in_pairs(self) -> None:
        """Nothing to be seen here."""


@dataclass
class Side:
    """One relay with all that it writes and notes."""

    kind: type[Relay]
    written: list[bytes] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)
    metrics: Metrics = field(default_factory=Metrics)
    exchange: Exchange = field(default_factory=lambda: an_exchange(replica="a", model="m1", head_at=999.0))
    outcome: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.protocol = Protocol()
        self.transport = SimpleNamespace(write=self.written.append, pause_reading=lambda: None)
        self.connection = SimpleNamespace(transport=self.transport, full=False, on_writable=None)
        link = SimpleNamespace(protocol=self.protocol, transport=self.transport)
        caller = SimpleNamespace(connection=self.connection, modern=True)
        done = SimpleNamespace(
            done=lambda: bool(self.outcome), set_result=self.outcome.append, set_exception=self.outcome.append
        )
        self.observer = Observer(self.exchange, self.clock, self.metrics, stream=True)
        self.relay = self.kind(cast(Any, link), cast(Any, caller), HEAD, self.observer, cast(Any, done))
        self.relay.begin(b"head", b"")

    def feed(self, data: bytes) -> None:
        self.clock.move(0.0123)
        if not self.outcome:
            self.relay.feed(data)

    def seen(self) -> dict[str, Any]:
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
            "written": self.written,
            "gaps": gaps,
            "exchange": [getattr(self.exchange, name) for name in fields],
            "ended": [repr(one) for one in self.outcome],
            "boundary": self.relay.at_event_boundary,
            "held": self.relay.held,
            "reusable": self.relay.reusable,
        }


def both(reads: list[bytes]) -> tuple[Side, Side]:
    ordinary, written_out = Side(Relay), Side(EventRelay)
    for data in reads:
        for side in (ordinary, written_out):
            side.feed(data)
        assert written_out.seen() == ordinary.seen(), data
    return ordinary, written_out


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


def test_a_stream_of_one_chunk_a_read_is_seen_alike() -> None:
    _, written_out = both(in_chunks(STREAM))
    assert b"".join(written_out.written) == b"head" + STREAM
    assert written_out.exchange.completion_tokens == 50
    assert written_out.outcome == [None]


@pytest.mark.parametrize("seed", range(30))
def test_a_stream_that_is_cut_anywhere_is_seen_alike(seed: int) -> None:
    chance = random.Random(seed)
    ends = list(accumulate(map(len, in_chunks(STREAM))))
    reads, at = [], 0
    while at < len(STREAM):
        next_end = next(end for end in ends if end > at)
        to = next_end if chance.random() < 0.7 else min(len(STREAM), at + chance.randint(1, 300))
        reads.append(STREAM[at:to])
        at = to
    both(reads)


def test_broken_framing_is_found_behind_the_beginning() -> None:
    reads = in_chunks(STREAM)[:10]
    same_length = reads[-1][:-2] + b"xx"
    both([*reads, same_length])


def test_a_client_that_is_full_holds_the_replica_up() -> None:
    sides = both(in_chunks(STREAM)[:10])
    for side in sides:
        side.connection.full = True
        side.feed(in_chunks(STREAM)[9])
        assert side.relay.held


def test_a_client_that_has_left_ends_it() -> None:
    sides = both(in_chunks(STREAM)[:10])

    def closed(_: bytes) -> None:
        raise RuntimeError("closed")

    for side in sides:
        side.relay._write = closed
        side.feed(in_chunks(STREAM)[9])
        assert len(side.outcome) == 1


def test_bytes_come_straight_until_it_has_ended() -> None:
    side = Side(EventRelay)
    assert side.protocol.straight is side.relay
    for data in in_chunks(STREAM):
        side.feed(data)
    assert side.protocol.straight is None


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("head", [HEAD, PLAIN])
def test_only_streams_of_events_to_clients_that_take_chunks_are_so(head: Any, modern: bool) -> None:
    side = Side(Relay)
    caller = SimpleNamespace(connection=side.connection, modern=modern)
    link = SimpleNamespace(protocol=side.protocol, transport=side.transport)
    parts = (cast(Any, link), cast(Any, caller), head)
    relay = relay_of(*parts, side.observer, cast(Any, None))
    assert isinstance(relay, EventRelay) is (head is HEAD and modern)
    watching = StoredResponseObserver(side.exchange, side.clock, side.metrics, stream=True, learn=print)
    assert not isinstance(relay_of(*parts, watching, cast(Any, None)), EventRelay)
