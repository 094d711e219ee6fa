"""One user's connection: a request out, a timed answer in. No task, future or copy for a chunk."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

from replicarouter.clock import Clock
from replicarouter.errors import BadReplicaResponse
from replicarouter.loadgen.report import Tally
from replicarouter.protocol.content import begins_answer, begins_reasoning, ends_in_error
from replicarouter.protocol.framing import BadFraming, Framing
from replicarouter.protocol.response_head import MAX_HEAD, ResponseHead, parse_head

_HEAD_END = b"\r\n\r\n"
_EVENT_END = b"\n\n"
_DONE = b"[DONE]"

_TAIL = 128
"""Bytes before a read that are looked at with it: what is looked for may be cut in two."""


@dataclass(slots=True)
class Answer:
    """How one request went; times in seconds from its write.

    `failure` is None for a whole answer of status 200 (a stream ends with `[DONE]`), otherwise says
    what was wrong in a few words. `ttft` is the time to the first content, None when none came.
    `events` counts SSE events, the closing ones included. `head` is the answer's, as it came; `body` too,
    chunk framing and all, where it is wanted.
    """

    status: int = 0
    failure: str | None = "unsettled"
    ttft: float | None = None
    seconds: float = 0.0
    events: int = 0
    head: bytes = b""
    body: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """A keep-alive connection that carries one request at a time. All it sees goes into `tally`. With
    `keep` the answers hold their bodies.

    Events are told by their final empty line, so one whose last two bytes arrive in different HTTP
    chunks is not counted.
    """

    def __init__(self, tally: Tally, clock: Clock, *, keep: bool = False) -> None:
        self._tally = tally
        self._clock = clock
        self._keep = keep
        self._transport: asyncio.Transport
        self._answer = Answer()
        self._done: asyncio.Future[None] | None = None
        self._head: ResponseHead | None = None
        self._framing: Framing | None = None
        self._partial_head = b""
        self._tail = b""
        self._sent_at = 0.0
        self._event_at = 0.0
        self.closed = False

    async def ask(self, request: bytes) -> Answer:
        """Send the request and wait for its answer to end. If cancelled, the connection is cut.

        ConnectionResetError when the connection has ended before.
        """
        if self.closed:
            raise ConnectionResetError
        self._answer = Answer()
        self._head = self._framing = None
        self._partial_head = self._tail = b""
        self._done = asyncio.get_running_loop().create_future()
        self._sent_at = self._clock()
        self._transport.write(request)
        try:
            await self._done
        finally:
            if self._done.cancelled():
                self.abort()
        return self._answer

    def abort(self) -> None:
        """Close at once; the server sees its client leave."""
        self.closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has accepted."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class, not a subclass

    def data_received(self, data: bytes) -> None:
        """Note what came, and when."""
        if self._done is None or self._done.done():
            self.abort()  # bytes that nobody asked for
            return
        now = self._clock()
        try:
            if self._framing is None:
                data = self._take_head(data)
                if self._framing is None or (not data and self._framing.feed(b"") < 0):
                    return
            self._take_body(self._framing, data, now)
        except (BadReplicaResponse, BadFraming):
            self._end("malformed answer")
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone: the end of some answers, too early for all others."""
        self.closed = True
        if self._done is None or self._done.done():
            return
        regular = error is None and self._framing is not None and self._framing.ends_with_connection
        self._end(self._verdict(self._tail) if regular else "connection lost")

    def _take_head(self, data: bytes) -> bytes:
        """Read the head, skipping interim ones; what follows it in `data`."""
        data = self._partial_head + data
        while (end := data.find(_HEAD_END)) >= 0:
            raw = data[:end]
            head = parse_head(raw)
            data = data[end + len(_HEAD_END) :]
            if not head.interim:
                self._head, self._framing = head, head.framing()
                self._answer.status = head.status
                self._answer.head = raw
                return data
        if len(data) > MAX_HEAD:
            raise BadReplicaResponse("The head does not end.")
        self._partial_head = data
        return b""

    def _take_body(self, framing: Framing, data: bytes, now: float) -> None:
        end = framing.feed(data)
        if self._keep:
            self._answer.body += data if end < 0 else data[:end]
        self._note_events(data, now)
        if end < 0:
            self._tail = data if len(data) >= _TAIL else (self._tail + data)[-_TAIL:]
            return
        self._end(self._verdict(self._tail + data))
        if end < len(data) or (self._head is not None and not self._head.keep_alive):
            self.abort()

    def _note_events(self, data: bytes, now: float) -> None:
        """Count the events that end in `data`, and time them."""
        answer, tally = self._answer, self._tally
        events = data.count(_EVENT_END)
        if data.startswith(b"\n") and self._tail.endswith(b"\n"):
            events += 1
        if events:
            answer.events += events
            tally.events += events
        if answer.ttft is None:
            seen = self._tail + data
            if begins_answer(seen) or begins_reasoning(seen):
                answer.ttft = now - self._sent_at
                tally.ttfts.append(answer.ttft)
                self._event_at = now
        elif events:
            tally.gaps.observe(now - self._event_at)
            self._event_at = now

    def _verdict(self, tail: bytes) -> str | None:
        """What is wrong with an answer that ended regularly with these bytes."""
        assert self._head is not None
        if self._head.status != 200:
            return f"status {self._head.status}"
        if not self._head.event_stream:
            return None
        if ends_in_error(tail):
            return "error event"
        return None if _DONE in tail else "stream without its end"

    def _end(self, failure: str | None) -> None:
        assert self._done is not None
        self._answer.failure = failure
        self._answer.seconds = self._clock() - self._sent_at
        self._done.set_result(None)


class Client:
    """One user: keeps its connection from request to request and opens a new one when it must. With `keep`
    its answers hold their bodies."""

    def __init__(self, host: str, port: int, *, tally: Tally, clock: Clock, keep: bool = False) -> None:
        self._address = host, port
        self._tally = tally
        self._clock = clock
        self._keep = keep
        self._connection: Connection | None = None

    async def ask(self, request: bytes) -> Answer:
        """One request, counted in the tally whatever becomes of it; failures are not raised."""
        self._tally.started += 1
        answer: Answer | None = None
        try:
            connection = await self._connected()
            answer = await connection.ask(request)
        except OSError:
            answer = Answer(failure="no connection")
        finally:
            self._count(answer)
        return answer

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None and not self._connection.closed:
            self._connection.abort()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(
                lambda: Connection(self._tally, self._clock, keep=self._keep), *self._address
            )
        return self._connection

    def _count(self, answer: Answer | None) -> None:
        """Settle a request; without an answer it was cut by its user."""
        if answer is None:
            self._tally.cut += 1
        elif answer.failure is None:
            self._tally.answered += 1
        else:
            self._tally.failures[answer.failure] += 1
