"""The relay of server-sent events: what is done for each token is written out in one step."""

import asyncio
from bisect import bisect_left

from replicarouter.errors import RouterError
from replicarouter.protocol.framing import LINE, WHOLE, Chunked
from replicarouter.protocol.response_head import ResponseHead
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.observe import Observer
from replicarouter.proxy.relay import ClientLeft, Relay
from replicarouter.proxy.upstream import Link


class EventRelay(Relay):
    """A relay of a chunked stream to a client that takes chunks.

    Most reads are one whole chunk behind the first content. For these `feed` does what `Relay.feed`,
    `Chunked.feed` and `Observer.chunk` do together, without the calls: with hundreds of streams each function
    has to be brought back into the processor's caches for every token, and costs several times what it
    takes in a loop. All other reads go the ordinary way.
    """

    __slots__ = ("_bounds", "_chunks", "_clock", "_counts", "_exchange", "_plain", "_sums")

    def __init__(
        self,
        link: Link,
        caller: Caller,
        head: ResponseHead,
        observer: Observer,
        done: "asyncio.Future[None]",
    ) -> None:
        super().__init__(link, caller, head, observer, done)
        assert isinstance(self._framing, Chunked)
        self._chunks = self._framing
        self._clock = observer.clock
        self._exchange = observer.exchange
        gaps = observer.gaps
        self._bounds, self._counts, self._sums = gaps.bounds, gaps.counts, gaps.sums
        self._plain = False  # Behind the first content, and behind a chunk.

    def begin(self, head: bytes, rest: bytes) -> None:
        """Write the head for the client, and with it what of the body has come."""
        protocol = self._link.protocol
        protocol.acknowledge_in_pairs()
        protocol.stream_to(self)
        self.feed(rest, head)

    def feed(self, data: bytes, head: bytes = b"") -> None:
        """Pass on what arrived."""
        size = len(data)
        if not self._plain or WHOLE.get(data[:LINE]) != size or data[-2:] != b"\r\n" or head:
            super().feed(data, head)
            self._plain = self._observer.settled and self._chunks.between
            return
        try:
            self._write(data)
        except RuntimeError:
            self.fail(ClientLeft())
            return
        exchange = self._exchange
        now = self._clock()
        gap = now - exchange.last_byte_at
        exchange.last_byte_at = now
        exchange.bytes_out += size
        self._counts[bisect_left(self._bounds, gap)] += 1
        self._sums[0] += gap
        observer = self._observer
        observer.fourth = observer.third
        observer.third = observer.second
        observer.second = observer.last
        observer.last = data
        if self._client.full:
            self._hold()

    def fail(self, error: RouterError | ClientLeft) -> None:
        """End the relaying with an error, unless it has ended already."""
        self._link.protocol.stream_to(None)
        super().fail(error)

    def finish(self) -> None:
        """The answer is complete."""
        self._link.protocol.stream_to(None)
        super().finish()


def relay_of(
    link: Link, caller: Caller, head: ResponseHead, observer: Observer, done: "asyncio.Future[None]"
) -> Relay:
    """The relay that an answer needs. Raises `ClientLeft`."""
    plain = type(observer) is Observer and head.event_stream and not head.encoded
    if plain and head.chunked and caller.modern:
        return EventRelay(link, caller, head, observer, done)
    return Relay(link, caller, head, observer, done)
