"""The engine's HTTP connections: one asyncio protocol each, no task, future or timer of its own."""

import asyncio
import random
import time
from collections import OrderedDict
from typing import Protocol, cast

from replicarouter.simulator.answers import Answer, StreamedAnswer, WholeAnswer
from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.frames import StreamFrames
from replicarouter.simulator.routes import Routes
from replicarouter.simulator.wire import (
    HttpRequest,
    MalformedRequest,
    Reply,
    RequestReader,
    stream_head,
)

_MAX_PIPELINED_BYTES = 1 << 16


class Service(Protocol):
    """What a connection needs of its engine."""

    model: str
    routes: Routes
    idle: "IdleConnections"

    def connected(self, connection: "Connection") -> None:
        """A connection has been opened."""

    def disconnected(self, connection: "Connection") -> None:
        """A connection has ended, whoever ended it."""

    def submit(self, answer: Answer) -> None:
        """Let the sequences of an answer be generated."""

    def cancel(self, answer: Answer) -> None:
        """Stop generating for an answer that nobody waits for."""


class Connection(asyncio.Protocol):
    """One client connection. Pipelined requests are served one after the other."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._reader = RequestReader()
        self._answer: Answer | None = None
        self._keep_alive = True
        self._write_paused = False
        self._read_paused = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class, not a subclass
        self._service.connected(self)

    def data_received(self, data: bytes) -> None:
        """Serve what is complete, keep the rest; beyond a bound stop reading until it is its turn."""
        self._service.idle.discard(self)
        self._reader.feed(data)
        if self._answer is None:
            self._serve()
        elif self._reader.buffered > _MAX_PIPELINED_BYTES and not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """A half-closed connection counts as a client that has gone; the transport closes itself."""
        self._cancel()

    def connection_lost(self, _error: Exception | None) -> None:
        """The client has gone: stop generating for it."""
        self._cancel()
        self._service.idle.discard(self)
        self._service.disconnected(self)

    def pause_writing(self) -> None:
        """The client reads more slowly than tokens come."""
        self._write_paused = True
        if self._answer:
            self._answer.paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._write_paused = False
        if self._answer:
            self._answer.resume()

    def close(self) -> None:
        """Close once what has been written is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _serve(self) -> None:
        try:
            while self._answer is None and not self._transport.is_closing():
                request = self._reader.next_request()
                if request is None:
                    break
                self._handle(request)
        except MalformedRequest as error:
            self._keep_alive = False
            self._reply(Reply(error.status, f"{error.problem}\n".encode(), "text/plain"))
            return
        if self._reader.wants_continue():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _handle(self, request: HttpRequest) -> None:
        self._service.idle.discard(self)
        self._keep_alive = request.keep_alive
        outcome = self._service.routes.respond(request)
        if isinstance(outcome, Reply):
            self._reply(outcome, head_only=request.method == "HEAD")
        else:
            self._generate(request, outcome)

    def _generate(self, request: HttpRequest, wanted: GenerationRequest) -> None:
        given = request.headers.get("x-request-id") or f"{random.getrandbits(64):016x}"
        answer_id = f"chatcmpl-{given}" if wanted.chat else f"cmpl-{given}"
        model, created = self._service.model, int(time.time())
        if wanted.stream:
            head = stream_head(now=created, keep_alive=request.keep_alive, chunked=request.modern)
            self._transport.write(head)
            frames = StreamFrames(
                wanted, model=model, answer_id=answer_id, created=created, chunked=request.modern
            )
            self._answer = StreamedAnswer(
                wanted, frames, write=self._transport.write, ended=self._answer_ended
            )
        else:
            self._answer = WholeAnswer(
                wanted, model=model, answer_id=answer_id, created=created, send=self._send_whole
            )
        self._answer.paused = self._write_paused
        self._service.submit(self._answer)

    def _send_whole(self, document: bytes) -> None:
        self._write_reply(Reply(200, document))
        self._answer_ended()

    def _reply(self, reply: Reply, *, head_only: bool = False) -> None:
        self._write_reply(reply, head_only=head_only)
        self._response_ended()

    def _write_reply(self, reply: Reply, *, head_only: bool = False) -> None:
        self._transport.write(reply.encode(now=time.time(), keep_alive=self._keep_alive, head_only=head_only))

    def _response_ended(self) -> None:
        if self._keep_alive:
            self._service.idle.add(self)
        else:
            self._transport.close()

    def _answer_ended(self) -> None:
        """The answer under way has been written: go on with what was pipelined behind it."""
        self._answer = None
        self._response_ended()
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()
        self._serve()

    def _cancel(self) -> None:
        if self._answer:
            self._service.cancel(self._answer)
            self._answer = None


class IdleConnections:
    """Closes connections that have been idle for `limit` seconds, with one timer for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self._loop = loop
        self._limit = limit
        self._since: OrderedDict[Connection, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> None:
        """It has been answered and waits for its next request."""
        now = self._loop.time()
        self._since[connection] = now
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._limit, self._sweep)

    def discard(self, connection: Connection) -> None:
        """It is idle no longer."""
        self._since.pop(connection, None)

    def stop(self) -> None:
        """Close no more connections."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        oldest = self._loop.time() - self._limit
        while self._since:
            connection, since = next(iter(self._since.items()))
            if since > oldest:
                self._timer = self._loop.call_at(since + self._limit, self._sweep)
                return
            del self._since[connection]
            connection.close()
