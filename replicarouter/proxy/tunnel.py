"""A WebSocket session: bytes pass both ways unchanged until one side ends it, with back-pressure by event.
No task, timer or parser for a frame."""

import asyncio
from collections.abc import Callable

from replicarouter.clock import Clock
from replicarouter.errors import ReplicaDisconnected, RouterError, SilentSession
from replicarouter.exchange import Exchange
from replicarouter.protocol.upgrade import ends_with_close, last_bytes
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.hung_up import hung_up
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.upstream import Link
from replicarouter.words import counted

LOOK_FOR_CLIENT = 1.0
"""Seconds between two looks whether a client that nothing is read from is still there."""

FLUSH = 0.5
"""Seconds for which a replica may take the last bytes of a client that has left."""


class Tunnel:
    """Receives the bytes of both sides, the replica's in `feed`, the client's in `take`.

    `done` resolves when the session has ended in order: one side had sent a Close frame before the first
    connection ended. Without one it fails with `ClientLeft` or `ReplicaDisconnected`, by whose
    connection ended first. `idle`: seconds of silence on both sides after which it fails with
    `SilentSession`, 0 for no bound; silence does not count while the client takes nothing.
    """

    __slots__ = (
        "_client",
        "_client_at",
        "_client_held",
        "_client_left",
        "_client_said",
        "_clock",
        "_done",
        "_exchange",
        "_idle",
        "_idle_timer",
        "_link",
        "_replica_held",
        "_replica_said",
        "_timer",
    )

    def __init__(
        self,
        link: Link,
        caller: Caller,
        exchange: Exchange,
        done: "asyncio.Future[None]",
        *,
        clock: Clock,
        idle: float,
    ) -> None:
        self._link = link
        self._client = caller.connection
        self._exchange = exchange
        self._done = done
        self._clock = clock
        self._idle = idle
        self._client_at = exchange.head_at
        self._client_said = self._replica_said = b""
        self._client_held = self._client_left = self._replica_held = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        exchange.last_byte_at = exchange.head_at
        done.add_done_callback(self._stop)

    @property
    def ended(self) -> bool:
        """Whether the session is over."""
        return self._done.done()

    def begin(self, head: bytes, rest: bytes) -> None:
        """Write the 101 head for the client, and let both sides speak; `rest` came behind the head."""
        transport = self._client.transport
        if transport is None or transport.is_closing():
            self._fail(ClientLeft())
            return
        self._link.protocol.receiver = self
        self._link.protocol.on_writable = self._resume_client
        transport.write(head)
        if rest:
            self.feed(rest)
        early = self._client.switch(self)
        if early:
            self.take(early)
        if self._idle:
            self._idle_timer = self._in(self._idle, self._look_for_silence)

    # What the replica says

    def feed(self, data: bytes) -> None:
        """Pass on to the client."""
        exchange = self._exchange
        exchange.bytes_out += len(data)
        exchange.last_byte_at = self._clock()
        self._replica_said = last_bytes(self._replica_said, data)
        transport = self._client.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if self._client.full and not self._replica_held and self._link.transport is not None:
            self._replica_held = True
            self._client.on_writable = self._resume_replica
            self._link.transport.pause_reading()

    def lost(self, error: BaseException | None) -> None:  # noqa: ARG002
        """The replica's connection has ended; what it said is on its way to the client."""
        gone = ReplicaDisconnected("The replica's connection ended without a Close frame.")
        self._end(ClientLeft() if self._client_left else gone)

    def _resume_replica(self) -> None:
        self._client.on_writable = None
        self._replica_held = False
        self._exchange.last_byte_at = self._clock()
        if self._link.transport is not None:
            self._link.transport.resume_reading()

    # What the client says

    def take(self, data: bytes) -> None:
        """Pass on to the replica."""
        link = self._link
        transport = link.transport
        if transport is None or transport.is_closing() or self._done.done():
            return
        self._exchange.bytes_in += len(data)
        self._client_at = self._clock()
        self._client_said = last_bytes(self._client_said, data)
        transport.write(data)
        if link.protocol.writing_paused and not self._client_held and self._client.transport is not None:
            self._client_held = True
            self._client.transport.pause_reading()
            self._timer = self._in(LOOK_FOR_CLIENT, self._look_for_client)

    def left(self) -> None:
        """The client has gone: the replica is told at once, behind what the client has said."""
        if self._client_left or self._done.done():
            return
        self._client_left = True
        self._stop_timer()
        transport = self._link.transport
        if transport is None or not transport.get_write_buffer_size():
            self._end(ClientLeft())
        else:
            transport.close()
            self._timer = self._in(FLUSH, lambda: self._end(ClientLeft()))

    def _resume_client(self) -> None:
        self._client_held = False
        self._stop_timer()
        transport = self._client.transport
        if transport is not None and not self._done.done():
            transport.resume_reading()

    def _look_for_client(self) -> None:
        """Nothing is read from the client, so that nothing tells when it leaves."""
        if hung_up(self._client.transport):
            self.left()
        else:
            self._timer = self._in(LOOK_FOR_CLIENT, self._look_for_client)

    # The end

    def _look_for_silence(self) -> None:
        left = self._idle - (self._clock() - max(self._client_at, self._exchange.last_byte_at))
        if self._replica_held:
            self._idle_timer = self._in(self._idle, self._look_for_silence)
        elif left > 0:
            self._idle_timer = self._in(left, self._look_for_silence)
        else:
            self._fail(SilentSession(f"Neither side spoke for {counted(self._idle, 'second')}."))

    def _end(self, error: RouterError | ClientLeft) -> None:
        """One side's connection has ended: with `error`, unless a Close frame had been sent before."""
        if not (
            ends_with_close(self._client_said, masked=True)
            or ends_with_close(self._replica_said, masked=False)
        ):
            self._fail(error)
        elif not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: RouterError | ClientLeft) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def _in(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop(self, _: "asyncio.Future[None]") -> None:
        """Nothing that comes from now on is of interest."""
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._client.on_writable == self._resume_replica:
            self._client.on_writable = None
