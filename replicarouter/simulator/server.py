"""The engine's HTTP connections: one asyncio protocol each, without a task or future of its own."""

import asyncio
import random
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, cast

from replicarouter.simulator.answers import Answer, StreamedAnswer, WholeAnswer
from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.faults import Fault
from replicarouter.simulator.faulty_writer import FaultyWriter
from replicarouter.simulator.frames import StreamFrames
from replicarouter.simulator.records import Records, name_of
from replicarouter.simulator.refusals import CORE_DEAD, ERROR_EVENT
from replicarouter.simulator.wire import (
    HttpRequest,
    MalformedRequest,
    Reply,
    RequestReader,
    stream_head,
)

_MAX_PIPELINED_BYTES = 1 << 16
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


class Service(Protocol):
    """What a connection needs of its engine. Beyond `most_answers` (0: no limit) it is closed."""

    model: str
    idle: "IdleConnections"
    records: Records

    @property
    def most_answers(self) -> int:
        """How many answers a connection may have; 0: any number."""

    @property
    def sse_keep_alive(self) -> float:
        """Seconds between comments of a stream that has no token yet; 0: none."""

    def respond(self, request: HttpRequest) -> Reply | GenerationRequest:
        """The reply to a request, or what it wants generated."""

    def generates(self, request: HttpRequest) -> bool:
        """Whether it is meant to have something generated."""

    def meet(self, request: HttpRequest) -> Reply | Fault | None:
        """What scripted faults do to a request; None lets it be served."""

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
        self._delayed: asyncio.TimerHandle | None = None
        self._silent = False
        self._answers = 0
        self._name: str | None = None  # of the generation under way
        self._keep_alive = True
        self._write_paused = False
        self._read_paused = False
        self._transport: asyncio.Transport
        self._write: Callable[[bytes], None]

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return self._answer is not None or self._silent or self._delayed is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class, not a subclass
        self._write = self._transport.write
        self._service.connected(self)

    def data_received(self, data: bytes) -> None:
        """Serve what is complete, keep the rest; beyond a bound stop reading until it is its turn."""
        self._service.idle.discard(self)
        self._reader.feed(data)
        if not self.busy:
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
        if self._answer and not self._silent:
            self._answer.resume()

    def close(self) -> None:
        """Close once what has been written is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # What faults do

    def fall_silent(self) -> None:
        """Write nothing more, and stay open."""
        self._silent = True
        if self._delayed:
            self._delayed.cancel()
        if self._answer:
            self._answer.paused = True

    def reset(self) -> None:
        """RST, at once."""
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL
        )
        self.kill()

    def hang_up(self) -> None:
        """FIN after what has been written, whatever is missing."""
        self._cancel()
        self._transport.close()

    def kill(self) -> None:
        """End at once what is under way, and the connection."""
        self._cancel()
        self._transport.abort()

    def hush(self) -> None:
        """Say nothing more, or close if no request is under way."""
        if self.busy:
            self.fall_silent()
        else:
            self.close()

    def fail(self) -> None:
        """The engine core has died: end the answer under way as vLLM does."""
        if self._answer is None or self._silent:
            return
        answer = self._answer
        self._cancel()
        if isinstance(answer, StreamedAnswer):
            self._write(answer.failing(ERROR_EVENT))
            self._response_ended()
        else:
            self._reply(CORE_DEAD)

    def cut_short(self) -> None:
        """The engine aborts what it generates: end the answer under way, which says so."""
        if self._answer is None or self._silent:
            return
        answer = self._answer
        self._cancel()
        if isinstance(answer, StreamedAnswer):
            self._write(answer.aborted())
        elif isinstance(answer, WholeAnswer):
            self._write_reply(Reply(200, answer.aborted()))
        self._response_ended()

    # Serving

    def _serve(self) -> None:
        try:
            while not self.busy and not self._transport.is_closing():
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
        service = self._service
        service.idle.discard(self)
        self._answers += 1
        most = service.most_answers
        self._keep_alive = request.keep_alive and not (most and self._answers >= most)
        if service.generates(request):
            self._name = name_of(request.headers)
            service.records.note(self._name, "received")
        met = service.meet(request)
        if met is None:
            self._respond(request)
        elif isinstance(met, Reply):
            self._reply(met, head_only=request.method == "HEAD")
        else:
            self._suffer(met, request)

    def _suffer(self, fault: Fault, request: HttpRequest) -> None:
        """Let a fault strike a request, now or in its answer."""
        if fault.kind == "delay":
            loop = asyncio.get_running_loop()
            self._delayed = loop.call_later(fault.delay, self._respond_late, request)
        elif fault.at != "start":
            self._write = FaultyWriter(fault, self, self._transport.write)
            self._respond(request)
        elif fault.kind == "hang":
            self._note("started")
            self._silent = True
        else:
            self._settle("dropped")
            if fault.kind == "reset":
                self.reset()
            else:
                self.hang_up()

    def _respond_late(self, request: HttpRequest) -> None:
        self._delayed = None
        self._respond(request)
        self._serve()

    def _respond(self, request: HttpRequest) -> None:
        outcome = self._service.respond(request)
        if isinstance(outcome, Reply):
            self._reply(outcome, head_only=request.method == "HEAD")
        else:
            self._generate(request, outcome)

    def _generate(self, request: HttpRequest, wanted: GenerationRequest) -> None:
        given = request.headers.get("x-request-id") or f"{random.getrandbits(64):016x}"
        answer_id = f"chatcmpl-{given}" if wanted.chat else f"cmpl-{given}"
        model, created = self._service.model, int(time.time())
        self._note("started")
        if wanted.stream:
            self._write(stream_head(now=created, keep_alive=self._keep_alive, chunked=request.modern))
            if self._transport.is_closing():
                return
            frames = StreamFrames(
                wanted, model=model, answer_id=answer_id, created=created, chunked=request.modern
            )
            self._answer = StreamedAnswer(wanted, frames, write=self._write, ended=self._answer_ended)
            self._comment_later(self._answer)
        else:
            self._answer = WholeAnswer(
                wanted, model=model, answer_id=answer_id, created=created, send=self._send_whole
            )
        self._answer.paused = self._write_paused or self._silent
        self._service.submit(self._answer)

    def _comment_later(self, answer: StreamedAnswer) -> None:
        if seconds := self._service.sse_keep_alive:
            asyncio.get_running_loop().call_later(seconds, self._comment, answer)

    def _comment(self, answer: StreamedAnswer) -> None:
        if self._answer is answer and not answer.begun:
            answer.comment()
            self._comment_later(answer)

    def _send_whole(self, document: bytes) -> None:
        self._write_reply(Reply(200, document))
        self._answer_ended()

    def _reply(self, reply: Reply, *, head_only: bool = False) -> None:
        self._settle("refused" if reply.status >= 400 else "finished")
        self._write_reply(reply, head_only=head_only)
        self._response_ended()

    def _write_reply(self, reply: Reply, *, head_only: bool = False) -> None:
        self._write(reply.encode(now=time.time(), keep_alive=self._keep_alive, head_only=head_only))

    def _response_ended(self) -> None:
        if self._silent or self._transport.is_closing():
            return
        self._write = self._transport.write
        if self._keep_alive:
            self._service.idle.add(self)
        else:
            self._transport.close()

    def _answer_ended(self) -> None:
        """The answer under way has been written: go on with what was pipelined behind it."""
        if self._answer is None or self._silent:
            return  # a fault has struck with its last bytes
        self._answer = None
        self._settle("finished")
        self._response_ended()
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()
        self._serve()

    def _cancel(self) -> None:
        if self._delayed:
            self._delayed.cancel()
            self._delayed = None
        if self._answer:
            self._answer.paused = True
            self._service.cancel(self._answer)
            self._answer = None
        self._settle("aborted")

    def _note(self, event: str) -> None:
        if self._name is not None:
            self._service.records.note(self._name, event)

    def _settle(self, event: str) -> None:
        """Note how the generation under way ended, if there is one."""
        self._note(event)
        self._name = None


class IdleConnections:
    """Closes connections that have been idle for `limit` seconds, with one timer for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self._loop = loop
        self._limit = limit
        self._since: OrderedDict[Connection, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> float:
        """Seconds; a change counts from the beginning of each connection's idleness."""
        return self._limit

    @limit.setter
    def limit(self, seconds: float) -> None:
        self._limit = seconds
        self.stop()
        self._sweep()

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
