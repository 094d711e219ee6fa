"""One try at one replica: send the request, read the head of the answer, hand the body to the relay."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from replicarouter.admission.lease import Lease
from replicarouter.clock import Clock
from replicarouter.errors import (
    BadReplicaResponse,
    IdleTimeout,
    ReplicaDisconnected,
    ResponseHeadTimeout,
    RouterError,
)
from replicarouter.exchange import Exchange, Stage
from replicarouter.protocol.headers import response_head
from replicarouter.protocol.response_head import MAX_HEAD, ResponseHead, parse_head
from replicarouter.proxy.body import Body
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.observe import Observer, Timings
from replicarouter.proxy.relay import ClientLeft, Relay
from replicarouter.proxy.upstream import Link

_STATUS_LINE_START = b"HTTP/1."
SWITCHING_PROTOCOLS = 101


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every attempt; times in seconds, 0 for no bound."""

    clock: Clock
    timings: Timings
    response_head: float
    idle: float
    expose_replica: bool


class Attempt:
    """Receives the bytes of the head; `run` ends with the answer complete, or raises what went wrong."""

    __slots__ = (
        "_buffer",
        "_caller",
        "_done",
        "_exchange",
        "_lease",
        "_link",
        "_terms",
        "_timer",
    )

    def __init__(self, link: Link, lease: Lease, caller: Caller, exchange: Exchange, terms: Terms) -> None:
        self._link = link
        self._lease = lease
        self._caller = caller
        self._exchange = exchange
        self._terms = terms
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, head: bytes, body: Body) -> None:
        """Send the request and wait for the end of the answer; the connection is given back or closed."""
        try:
            self._exchange.sent_at = self._terms.clock()
            self._lease.move(Stage.SENT)
            self._link.send(self, head, body.data)
            body.drop()
            if self._terms.response_head and self._caller.relay is None:
                self._start_timer(self._terms.response_head, self._head_overdue)
            await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()
            relay = self._caller.relay
            self._link.end(reusable=relay is not None and relay.reusable)

    def feed(self, data: bytes) -> None:
        """Collect the head; 1xx heads are of no interest to the client and are skipped."""
        while True:
            buffer = self._buffer + data if self._buffer else data
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._keep(buffer)
                return
            try:
                head = parse_head(buffer[:end])
                _check_size(end)
            except BadReplicaResponse as error:
                self._fail(error)
                return
            rest = buffer[end + 4 :]
            if head.status == SWITCHING_PROTOCOLS:
                self._fail(BadReplicaResponse("The replica switched protocols without being asked."))
                return
            if not head.interim:
                self._commit(head, rest)
                return
            self._buffer, data = b"", rest
            if not rest:
                return

    def lost(self, error: BaseException | None) -> None:  # noqa: ARG002
        """The connection ended without an answer."""
        self._fail(ReplicaDisconnected("The replica closed the connection without an answer."))

    def _keep(self, buffer: bytes) -> None:
        """An unfinished head: refuse early what can no longer become a well-formed one."""
        start = buffer[: len(_STATUS_LINE_START)]
        if not _STATUS_LINE_START.startswith(start):
            self._fail(BadReplicaResponse("The replica's answer has a malformed status line."))
        elif len(buffer) > MAX_HEAD:
            self._fail(BadReplicaResponse("The replica's answer has too large a head."))
        elif buffer.count(b"\n") != buffer.count(b"\r\n"):
            self._fail(BadReplicaResponse("The replica's answer has a bare line feed in its head."))
        else:
            self._buffer = buffer

    def _commit(self, head: ResponseHead, rest: bytes) -> None:
        """From here on the client has an answer: nothing can be retried any more."""
        exchange, caller, terms = self._exchange, self._caller, self._terms
        exchange.head_at = terms.clock()
        exchange.status = head.status
        self._lease.move(Stage.STREAMING)
        observer = Observer(
            exchange,
            terms.clock,
            terms.timings,
            stream=head.event_stream and not head.encoded,
        )
        try:
            relay = Relay(self._link, caller, head, observer, self._done)
        except ClientLeft as error:
            self._fail(error)
            return
        caller.relay = relay
        if head.length is None and not head.chunked and not head.bodiless:
            caller.keep_alive = False
        self._link.protocol.receiver = relay
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if terms.idle:
            self._start_timer(terms.idle, self._check_idle)
        relay.begin(self._client_head(head), rest)

    def _client_head(self, head: ResponseHead) -> bytes:
        exchange, caller = self._exchange, self._caller
        return response_head(
            head,
            receipts(exchange, expose_replica=self._terms.expose_replica),
            modern=caller.modern,
            close=not caller.keep_alive,
        )

    def _fail(self, error: RouterError | ClientLeft) -> None:
        self._link.protocol.receiver = None
        if not self._done.done():
            self._done.set_exception(error)

    def _start_timer(self, delay: float, due: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay, due)

    def _head_overdue(self) -> None:
        self._fail(
            ResponseHeadTimeout(f"The replica sent no answer within {self._terms.response_head:g} seconds.")
        )

    def _check_idle(self) -> None:
        """Silence counts only while the client takes what it is given."""
        relay, limit = self._caller.relay, self._terms.idle
        if relay is None:
            return
        left = limit - (self._terms.clock() - relay.quiet_since)
        if relay.held:
            self._start_timer(limit, self._check_idle)
        elif left > 0:
            self._start_timer(left, self._check_idle)
        else:
            relay.fail(IdleTimeout(f"The replica was silent for {limit:g} seconds."))


def receipts(exchange: Exchange, *, expose_replica: bool) -> bytes:
    """Field lines of ours: the request id, who answered, and the router's share of the time."""
    queue = (exchange.leased_at - exchange.received_at) * 1000
    connect = (exchange.sent_at - exchange.leased_at) * 1000
    head = (exchange.head_at - exchange.sent_at) * 1000
    named = f"X-Replicarouter-Replica: {exchange.replica}\r\n" if expose_replica else ""
    return (
        f"X-Request-Id: {exchange.client_id}\r\n{named}"
        f"X-Replicarouter-Affinity: {exchange.affinity}\r\n"
        f"Server-Timing: queue;dur={queue:.3f}, connect;dur={connect:.3f}, head;dur={head:.3f}\r\n"
    ).encode("utf-8", "surrogateescape")


def _check_size(size: int) -> None:
    if size > MAX_HEAD:
        raise BadReplicaResponse("The replica's answer has too large a head.")
