"""The relay of server-sent events: what is done for each token is written out in one place."""

import asyncio
import socket
from bisect import bisect_left
from collections.abc import Generator
from types import GeneratorType
from typing import cast

from replicarouter.protocol.framing import LINE, WHOLE, Chunked
from replicarouter.protocol.response_head import ResponseHead
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.observe import Observer
from replicarouter.proxy.relay import ClientLeft, Relay
from replicarouter.proxy.straight import write
from replicarouter.proxy.upstream import Link

_size_of = WHOLE.get


class EventRelay(Relay):
    """A relay of a chunked stream to a client that takes chunks on a plain connection.

    Most reads are one whole chunk behind the first content. For these a generator, which the replica's
    transport feeds without a step between, does what `Relay.feed`, `Chunked.feed` and `Observer.chunk` do
    together. With hundreds of streams hardly anything of one is in the processor's caches when its next token
    comes, and each object that is touched costs about as much as ten steps of the interpreter. So the
    generator keeps in its own frame what changes with every token, and the exchange and the observer get it
    when they are asked (`Exchange.refresh`) and whenever a read goes the ordinary way.
    """

    __slots__ = ("_chunks", "_socket", "_tokens")

    def __init__(
        self,
        link: Link,
        caller: Caller,
        head: ResponseHead,
        observer: Observer,
        done: "asyncio.Future[None]",
        straight: socket.socket,
    ) -> None:
        super().__init__(link, caller, head, observer, done)
        assert isinstance(self._framing, Chunked)
        self._chunks = self._framing
        self._socket = straight
        self._tokens: GeneratorType[None, bytes, None] | None = None

    def begin(self, head: bytes, rest: bytes) -> None:
        """Write the head for the client, and with it what of the body has come."""
        self.feed(rest, head)
        if not self._done.done():
            protocol = self._link.protocol
            protocol.acknowledge_in_pairs()
            tokens = self._tokens = cast("GeneratorType[None, bytes, None]", self._relay_tokens())
            next(tokens)
            self._observer.exchange.on_refresh = self.settle
            protocol.stream_to(tokens.send)

    @property
    def at_event_boundary(self) -> bool:
        """Whether an SSE event of our own could follow what was relayed so far."""
        self.settle()
        return super().at_event_boundary

    def end_early(self) -> bool:
        """Its client has left: whether it had all there is, as clients that stop at `[DONE]` have."""
        self.settle()
        return super().end_early()

    def settle(self) -> None:
        """Let the exchange and the observer know what the generator keeps."""
        if self._tokens is not None and self._tokens.gi_suspended:
            self._tokens.send(b"")

    def stop(self) -> None:
        """Pass on nothing more."""
        super().stop()
        if self._tokens is not None:
            self.settle()
            self._tokens = None
            self._observer.exchange.on_refresh = None
            self._link.protocol.stream_to(None)

    def _relay_tokens(self) -> Generator[None, bytes, None]:
        """Takes the reads. While it waits in its outer loop, the exchange and the observer know all; a read
        of nothing brings it there."""
        observer = self._observer
        exchange = observer.exchange
        chunks = self._chunks
        transport = self._client.transport
        assert transport is not None
        held_back = transport.get_write_buffer_size
        gaps = observer.gaps
        # From here on what every token needs: in the frame it stands side by side.
        clock = observer.clock
        send = self._socket.send
        bounds, counts, sums = gaps.bounds, gaps.counts, gaps.sums
        while True:
            data = yield
            size = len(data)
            whole = _size_of(data[:LINE]) == size and data[-2:] == b"\r\n"
            if not whole or not chunks.between or not observer.settled or held_back():
                if data:
                    self.feed(data)
                continue
            last, second, third = observer.last, observer.second, observer.third
            last_at = exchange.last_byte_at
            passed = 0
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
                    self._write_later(data[sent:])
                    data = b""
                    break
                data = yield
                size = len(data)
                whole = _size_of(data[:LINE]) == size and data[-2:] == b"\r\n"
            observer.last, observer.second, observer.third, observer.fourth = last, second, third, fourth
            exchange.last_byte_at = last_at
            exchange.bytes_out += passed
            if data:
                self.feed(data)

    def _write_head(self, data: bytes) -> None:
        """Past the transport: the first token is with it."""
        transport = self._client.transport
        assert transport is not None
        write(transport, self._socket, data)

    def _write_later(self, rest: bytes) -> None:
        """The client's side of the connection takes no more now, or nothing ever: its transport knows."""
        try:
            self._write(rest)
        except RuntimeError:
            self.fail(ClientLeft())
            return
        if self._client.full:
            self._hold()


def relay_of(
    link: Link, caller: Caller, head: ResponseHead, observer: Observer, done: "asyncio.Future[None]"
) -> Relay:
    """The relay that an answer needs. Raises `ClientLeft`."""
    plain = type(observer) is Observer and head.event_stream and not head.encoded
    if plain and head.chunked and caller.modern:
        straight = caller.connection.straight()
        if straight is not None:
            return EventRelay(link, caller, head, observer, done, straight)
    return Relay(link, caller, head, observer, done)
