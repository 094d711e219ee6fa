"""The relay of server-sent events, whose tokens go a shorter way than other bytes."""

import asyncio
import socket

from replicarouter.protocol.framing import Chunked
from replicarouter.protocol.response_head import ResponseHead
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.observe import Observer
from replicarouter.proxy.reads import Path
from replicarouter.proxy.relay import ClientLeft, Relay
from replicarouter.proxy.straight import write
from replicarouter.proxy.upstream import Link


class EventRelay(Relay):
    """A relay of a chunked stream to a client that takes chunks on a plain connection. Its tokens pass it by:
    the connection's `Reads` take them along its path."""

    __slots__ = ("_chunks", "_socket")

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

    def begin(self, head: bytes, rest: bytes) -> None:
        """Write the head for the client, and with it what of the body has come."""
        self.feed(rest, head)
        if not self._done.done():
            protocol = self._link.protocol
            protocol.acknowledge_in_pairs()
            protocol.stream = self
            protocol.settle()
            self._observer.exchange.on_refresh = protocol.settle

    def path(self) -> Path:
        """The way of its tokens."""
        transport = self._client.transport
        assert transport is not None
        observer, held_back = self._observer, transport.get_write_buffer_size
        lookout = self._client.lookout
        return Path(
            observer,
            observer.exchange,
            self._chunks,
            held_back,
            self._socket.send,
            observer.clock,
            observer.gaps,
            lookout.expected,
            lookout.look,
        )

    @property
    def at_event_boundary(self) -> bool:
        """Whether an SSE event of our own could follow what was relayed so far."""
        self._observer.exchange.refresh()
        return super().at_event_boundary

    def end_early(self) -> bool:
        """Its client has left: whether it had all there is, as clients that stop at `[DONE]` have."""
        self._observer.exchange.refresh()
        return super().end_early()

    def take(self, data: bytes) -> None:
        """A read that is not just a token, or of nothing."""
        if data:
            self.feed(data)

    def stop(self) -> None:
        """Pass on nothing more."""
        super().stop()
        protocol = self._link.protocol
        if protocol.stream is self:
            protocol.stream = None
            protocol.settle()
            self._observer.exchange.on_refresh = None
            self._client.streamed = True

    def _write_head(self, data: bytes) -> None:
        """Past the transport: the first token is with it."""
        transport = self._client.transport
        assert transport is not None
        write(transport, self._socket, data)

    def write_later(self, rest: bytes) -> None:
        """The client's side of the connection takes no more of a token now, or nothing ever: its transport
        knows."""
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
