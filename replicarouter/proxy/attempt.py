"""One try at one replica: send the request, read the head of the answer, hand the body to the relay."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from replicarouter.admission.lease import Lease
from replicarouter.clock import Clock
from replicarouter.errors import (
    BadReplicaResponse,
    ReplicaDisconnected,
    ResponseHeadTimeout,
    RouterError,
    StaleConnection,
)
from replicarouter.exchange import Stage
from replicarouter.protocol.framing import BadFraming
from replicarouter.protocol.refusal import REFUSING, Refusal
from replicarouter.protocol.response_head import BODILESS, MAX_HEAD, ResponseHead, parse_head
from replicarouter.protocol.upgrade import switches, switching_head
from replicarouter.proxy.errand import Declined, Errand, MayDecline
from replicarouter.proxy.event_relay import relay_of
from replicarouter.proxy.held import HOLD, HeldAnswer
from replicarouter.proxy.observe import LARGE, Observer, StoredResponseObserver, Timings, note_usage
from replicarouter.proxy.receipts import client_head, receipts
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.silence import SilenceWatch
from replicarouter.proxy.tunnel import Tunnel
from replicarouter.proxy.upload import Upload
from replicarouter.proxy.upstream import Link
from replicarouter.words import counted

_STATUS_LINE_START = b"HTTP/1."
SWITCHING_PROTOCOLS = 101
REFUSED = 300
"""Statuses from here on say that the replica does not want the rest of an upload."""
OK = 200

_SENT, _STREAMING = Stage.SENT, Stage.STREAMING
"""Looked up once: on the class of an enumeration that takes as long as a move."""

MOST_INTERIM = 16
"""1xx heads before the answer; a replica has reason to send one or two."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every attempt; times in seconds, 0 for no bound. `sse_keepalive`: silence after
    which a reader of server-sent events gets a comment."""

    clock: Clock
    timings: Timings
    response_head: float
    idle: float
    expose_replica: bool
    stale_window: float
    sse_keepalive: float


class Attempt:
    """Receives the bytes of the head; `run` ends with the answer complete, or raises what went wrong.

    An answer that may mean "not me, not now" is held back until `may_decline` has said whether the
    request goes elsewhere (`Declined`); `refusal` is what it said in the end.
    """

    __slots__ = (
        "_buffer",
        "_done",
        "_errand",
        "_held",
        "_interim",
        "_lease",
        "_link",
        "_may_decline",
        "_reusable",
        "_silence",
        "_terms",
        "_timer",
        "_undelivered",
        "refusal",
    )

    def __init__(
        self, link: Link, lease: Lease, errand: Errand, terms: Terms, may_decline: MayDecline
    ) -> None:
        self._link = link
        self._lease = lease
        self._errand = errand
        self._terms = terms
        self._may_decline = may_decline
        self._buffer = b""
        self._held: HeldAnswer | None = None
        self._interim = 0
        self._reusable = False
        self._undelivered = False
        self._silence: SilenceWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = link.protocol.loop.create_future()
        self.refusal: Refusal | None = None

    async def run(self, head: bytes) -> None:
        """Send the request and wait for the end of the answer; the connection is given back or closed."""
        errand = self._errand
        try:
            if errand.body.streams:
                self._send(head)
                await errand.body.pump(self._link, self._done)
            else:
                errand.caller.connection.outbox.add_in_turn(self._send, head)
            # An upload may have been answered before its end: what waits then is the held answer's timer.
            if self._terms.response_head and self._held is None and errand.caller.relay is None:
                self._start_timer(self._terms.response_head, self._head_overdue)
            await self._done
        except BaseException:
            if self._done.done() and not self._done.cancelled():
                self._done.exception()  # Seen, though something else has ended the wait in the same turn.
            raise
        finally:
            self._end()
        if self._undelivered:
            raise ClientLeft

    def _end(self) -> None:
        """However it went."""
        if self._timer is not None:
            self._stop_timer()
        if self._silence is not None:
            self._silence.stop()
        errand = self._errand
        relay = errand.caller.relay
        reusable = self._reusable
        if relay is not None:
            relay.stop()
            reusable = reusable or relay.reusable
        self._link.end(reusable=reusable and errand.body.sent)

    def _send(self, head: bytes) -> None:
        """Send the request, unless that has become pointless since."""
        if self._done.done():
            return
        errand = self._errand
        errand.exchange.sent_at = self._terms.clock()
        self._lease.move(_SENT)
        self._link.send(self, head, errand.body.data)

    def feed(self, data: bytes) -> None:
        """Collect the head; 1xx heads are of no interest to the client and are skipped."""
        if self._held is not None:
            self._feed_held(self._held, data)
            return
        while True:
            buffer = self._buffer + data if self._buffer else data
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._keep(buffer)
                return
            try:
                head = parse_head(buffer[:end])
            except BadReplicaResponse as error:
                self._fail(error)
                return
            if end > MAX_HEAD:
                self._fail(BadReplicaResponse("The replica's answer has too large a head."))
                return
            rest = buffer[end + 4 :]
            if head.status == SWITCHING_PROTOCOLS:
                self._switch(head, asked_for=self._errand.upgrade and switches(buffer[:end]), rest=rest)
                return
            if not head.interim:
                if head.status in REFUSING:
                    self._hold(head, rest)
                else:
                    self._commit(head, rest)
                return
            self._interim += 1
            if self._interim > MOST_INTERIM:
                self._fail(BadReplicaResponse("The replica sends one interim answer after another."))
                return
            self._buffer, data = b"", rest
            if not rest:
                return

    def lost(self, error: BaseException | None) -> None:
        """The connection ended: without an answer, or while its answer was held."""
        held = self._held
        if held is not None and error is None and held.ends_with_connection:
            self._decide(held)
        elif self._went_stale():
            self._fail(StaleConnection("The replica closed the connection without an answer."))
        else:
            self._fail(ReplicaDisconnected("The replica closed the connection without an answer."))

    def _went_stale(self) -> bool:
        """Whether the replica had given the connection up before it could see the request."""
        if not self._link.reused or self._buffer or self._interim or self._held is not None:
            return False
        return self._terms.clock() - self._errand.exchange.sent_at <= self._terms.stale_window

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

    def _hold(self, head: ResponseHead, rest: bytes) -> None:
        """The head is here, and may be that of a refusal."""
        self._stop_timer()
        self._held = HeldAnswer(head)
        self._start_timer(HOLD, self._give_in)
        self._feed_held(self._held, rest)

    def _feed_held(self, held: HeldAnswer, data: bytes) -> None:
        """Collect what is held, until it is complete or too long to be a refusal."""
        try:
            complete = held.feed(data)
        except BadFraming as error:
            self._fail(BadReplicaResponse(f"The replica's answer is broken: {error}."))
            return
        if held.too_long:
            self._pass_on(held)
        elif complete:
            self._decide(held)

    def _give_in(self) -> None:
        """The held answer takes its time: pass on what there is."""
        self._timer = None
        if self._held is not None and not self._done.done():
            self._pass_on(self._held)

    def _decide(self, held: HeldAnswer) -> None:
        """A whole held answer: pass it on, or let another replica have the request."""
        self.refusal = held.read()
        if self.refusal is not None and self._may_decline(self._errand, self._lease.replica):
            self._reusable = held.reusable
            self._fail(Declined(held, self.refusal))
            return
        self._pass_on(held)
        if held.ends_with_connection and self._errand.caller.relay is not None:
            self._errand.caller.relay.lost(None)

    def _pass_on(self, held: HeldAnswer) -> None:
        """Give the client what was held, and whatever follows."""
        self._held = None
        self._commit(held.head, held.data)
        if held.surplus:
            self._reusable = False
            if self._errand.caller.relay is not None:
                self._errand.caller.relay.reusable = False

    def _commit(self, head: ResponseHead, rest: bytes) -> None:
        """From here on the client has an answer: nothing can be retried any more."""
        errand, terms = self._errand, self._terms
        exchange, caller = errand.exchange, errand.caller
        exchange.head_at = terms.clock()
        exchange.status = head.status
        if errand.body.streams:
            errand.body.drop()
            self._cut_upload(errand.body, head)
        if len(rest) == head.length and not head.event_stream and self._may_answer_whole(head):
            self._answered()
            self._answer_whole(head, rest)
            return
        observer = self._observer(head)
        try:
            relay = relay_of(self._link, caller, head, observer, self._done)
        except ClientLeft as error:
            self._answered()
            self._fail(error)
            return
        caller.relay = relay
        if head.length is None and not head.chunked and not head.bodiless:
            caller.keep_alive = False
        self._link.protocol.receiver = relay
        relay.begin(client_head(exchange, caller, head, expose_replica=terms.expose_replica), rest)
        # Only now: the first token is on its way.
        self._answered()
        if self._timer is not None:
            self._stop_timer()
        if (terms.idle or terms.sse_keepalive) and not self._done.done():
            self._silence = SilenceWatch(
                relay, exchange, terms.clock, idle=terms.idle, comment_every=terms.sse_keepalive
            )

    def _answered(self) -> None:
        """The request will not be sent again."""
        self._errand.body.drop()
        self._lease.move(_STREAMING)

    def _cut_upload(self, body: Upload, head: ResponseHead) -> None:
        """The answer has begun: if that was before all was sent, the client's connection ends with it."""
        if not body.sent:
            self._errand.caller.keep_alive = False
            if head.status >= REFUSED:
                body.stop()

    def _may_answer_whole(self, head: ResponseHead) -> bool:
        return head.status not in BODILESS and self._errand.learn is None and not self._errand.body.streams

    def _answer_whole(self, head: ResponseHead, body: bytes) -> None:
        """The whole of an answer that is no stream has come at once: what a relay and its observer would do
        from here on, in one step."""
        errand, terms = self._errand, self._terms
        exchange, caller = errand.exchange, errand.caller
        # Its series of gaps begins to exist with the first answer of a replica, whatever that is.
        terms.timings.gaps.of((exchange.replica,))
        transport = caller.connection.transport
        self._link.protocol.receiver = None
        if transport is None or transport.is_closing():
            self._fail(ClientLeft())
            return
        answer = client_head(exchange, caller, head, expose_replica=terms.expose_replica) + body
        caller.connection.outbox.add(self._deliver, answer)
        caller.answered = True
        self._reusable = head.keep_alive
        exchange.bytes_out += len(body)
        exchange.last_byte_at = terms.clock()
        note_usage(exchange, body[-LARGE:])
        if not self._done.done():
            self._done.set_result(None)

    def _deliver(self, answer: bytes) -> None:
        """Write a whole answer, unless its client has left since it came. Before `run` hears of its end."""
        errand = self._errand
        transport = errand.caller.connection.transport
        if transport is not None and not transport.is_closing():
            transport.write(answer)
            return
        self._undelivered = True
        errand.caller.answered = False
        errand.exchange.bytes_out = 0

    def _switch(self, head: ResponseHead, *, asked_for: bool, rest: bytes) -> None:
        """The connection speaks another protocol from here on."""
        errand, terms = self._errand, self._terms
        exchange = errand.exchange
        if not asked_for:
            self._fail(BadReplicaResponse("The replica switched protocols without being asked."))
            return
        self._stop_timer()
        exchange.head_at = terms.clock()
        exchange.status = head.status
        self._lease.move(_STREAMING)
        errand.caller.tunnel = Tunnel(
            self._link, errand.caller, exchange, self._done, clock=terms.clock, idle=terms.idle
        )
        errand.caller.tunnel.begin(
            switching_head(head, receipts(exchange, expose_replica=terms.expose_replica)), rest
        )

    def _observer(self, head: ResponseHead) -> Observer:
        """The watcher of this answer: it looks for the id of a stored response, where there may be one."""
        errand, terms = self._errand, self._terms
        stream = head.event_stream and not head.encoded
        if errand.learn is None or head.status != OK or head.encoded:
            return Observer(errand.exchange, terms.clock, terms.timings, stream=stream)
        learn = partial(errand.learn, replica=self._lease.replica)
        return StoredResponseObserver(errand.exchange, terms.clock, terms.timings, stream=stream, learn=learn)

    def _fail(self, error: RouterError | ClientLeft | Declined) -> None:
        if self._done.done():
            return  # The connection may serve another request by now.
        self._link.protocol.receiver = None
        self._done.set_exception(error)

    def _start_timer(self, delay: float, due: Callable[[], None]) -> None:
        self._timer = self._link.protocol.loop.call_later(delay, due)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_overdue(self) -> None:
        limit = counted(self._terms.response_head, "second")
        self._fail(ResponseHeadTimeout(f"The replica sent no answer within {limit}."))
