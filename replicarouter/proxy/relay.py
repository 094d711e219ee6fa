"""An answer's body on its way from a replica's connection to a client's: framing verbatim, back-pressure
by event. No task, future, timer or parser for a chunk."""

import asyncio
from collections.abc import Callable

from replicarouter.errors import BadReplicaResponse, ReplicaDisconnected, RouterError
from replicarouter.protocol.framing import BadFraming, Dechunker, Framing, chunk
from replicarouter.protocol.response_head import ResponseHead
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.observe import Observer
from replicarouter.proxy.upstream import Link


class ClientLeft(Exception):
    """The client's connection is closed; its handler is about to be cancelled."""


class Relay:
    """Receives a replica's bytes from the end of the head on.

    `done` resolves when the answer is complete and fails with what went wrong; `reusable` then says
    whether the replica's connection may serve another request.
    """

    __slots__ = (
        "_client",
        "_dechunk",
        "_done",
        "_framing",
        "_head",
        "_link",
        "_observe",
        "_observer",
        "_write",
        "committed",
        "held",
        "reusable",
    )

    def __init__(
        self,
        link: Link,
        caller: Caller,
        head: ResponseHead,
        observer: Observer,
        done: "asyncio.Future[None]",
    ) -> None:
        transport = caller.connection.transport
        if transport is None:
            raise ClientLeft
        self._link = link
        self._client = caller.connection
        self._head = head
        self._framing: Framing = head.framing()
        self._observer = observer
        self._observe = observer.chunk
        self._done = done
        self._dechunk = Dechunker() if head.chunked and not caller.modern else None
        self._write: Callable[[bytes], None] = transport.write
        self.committed = False
        self.held = False
        self.reusable = False

    def begin(self, head: bytes, rest: bytes) -> None:
        """Write the head for the client, and with it what of the body has come."""
        self.feed(rest, head)

    def feed(self, data: bytes, head: bytes = b"") -> None:
        """Pass on what arrived. The hot path: everything here happens for every token."""
        try:
            end = self._framing.feed(data)
            if end >= 0:
                self.reusable = end == len(data) and self._head.keep_alive
                data = data[:end]
            taken = data if self._dechunk is None else self._dechunk.feed(data)
            if head:
                (self._write_head if end < 0 else self._write)(head + taken)
                self.committed = True
            else:
                self._write(taken)
        except BadFraming as error:
            self.fail(BadReplicaResponse(f"The replica's answer is broken: {error}."))
            return
        except RuntimeError:
            self.fail(ClientLeft())
            return
        self._observe(data)
        if end >= 0:
            self.finish()
        elif self._client.full:
            self._hold()

    def lost(self, error: BaseException | None) -> None:
        """The replica's connection has ended: the regular end for some bodies, a failure for others."""
        if error is None and self._framing.ends_with_connection:
            self.finish()
        else:
            self.fail(ReplicaDisconnected("The replica's connection ended before its answer did."))

    def fail(self, error: RouterError | ClientLeft) -> None:
        """End the relaying with an error, unless it has ended already."""
        self.stop()
        if not self._done.done():
            self._done.set_exception(error)

    def stop(self) -> None:
        """Pass on nothing more."""
        self._link.protocol.receiver = None

    @property
    def ended(self) -> bool:
        """Whether the answer is complete, or has failed."""
        return self._done.done()

    @property
    def event_stream(self) -> bool:
        """Whether the client reads server-sent events whose bytes can be understood."""
        return self._head.event_stream and not self._head.encoded

    def insert(self, event: bytes) -> bool:
        """Write an event or comment of our own, if one can stand here; False when it cannot."""
        if not self.at_event_boundary or self.held:
            return False
        try:
            self._write(self.framed(event))
        except RuntimeError:
            return False
        return True

    def framed(self, event: bytes) -> bytes:
        """An event of our own as it stands in this answer."""
        return chunk(event) if self.chunks else event

    @property
    def at_event_boundary(self) -> bool:
        """Whether an SSE event of our own could follow what was relayed so far."""
        return (
            self.event_stream
            and self._framing.at_boundary()
            and self._observer.ends_event(chunked=self._head.chunked)
        )

    @property
    def ends_with_connection(self) -> bool:
        """Whether the client takes the end of its connection for the end of the body."""
        return self._framing.ends_with_connection or self._dechunk is not None

    @property
    def chunks(self) -> bool:
        """Whether the client gets a chunked body."""
        return self._head.chunked and self._dechunk is None

    def end_early(self) -> bool:
        """Its client has left: whether it had all there is, as clients that stop at `[DONE]` have."""
        if not self._observer.said_all():
            return False
        self._observer.end()
        return True

    def finish(self) -> None:
        """The answer is complete."""
        self.stop()
        self._observer.end()
        if not self._done.done():
            self._done.set_result(None)

    def _write_head(self, data: bytes) -> None:
        """Write the head, and what of the body came with it, of an answer that goes on."""
        self._write(data)

    def _hold(self) -> None:
        """Stop reading from the replica until the client has taken what it was given."""
        if self.held:
            return
        transport = self._link.transport
        if transport is not None:
            self.held = True
            self._observer.pause()
            self._client.on_writable = self._resume
            transport.pause_reading()

    def _resume(self) -> None:
        self._client.on_writable = None
        self.held = False
        self._observer.restart_silence()
        transport = self._link.transport
        if transport is not None and self._link.protocol.receiver is self:
            transport.resume_reading()
