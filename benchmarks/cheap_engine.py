"""Replicas that cost next to nothing: a port each, raw protocols, canned answers.

It looks at no request: every POST gets the one answer that the command line chose. Each event
carries the time it was written, so that a client on the same machine can tell its delay.
"""

import argparse
import asyncio
import gc
import json
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MARK = b"~"  # stands once in each event and nowhere else, so that one byte counts one event
METRICS_PAGE = Path(__file__).parent.parent / "tests/engines/data/vllm-0.32.0-under-load.txt"

_BEFORE_TIME = b'data: {"id":"chatcmpl-' + MARK
_AFTER_TIME = (
    f'","object":"chat.completion.chunk","created":1767225600,"model":"{MODEL}",'
    '"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":%s,'
    '"token_ids":null}]}\n\n'
)
_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)")
_RUNNING = re.compile(rb"(?<=\nvllm:num_requests_running)(\{[^}]*\} )\S+")
_WAITING = re.compile(rb"(?<=\nvllm:num_requests_waiting)(\{[^}]*\} )\S+")


def _event_frame(finish_reason: str) -> tuple[bytes, bytes]:
    """Return what stands before and after the 16 digits of time in the chunk of one event."""
    after = (_AFTER_TIME % finish_reason).encode()
    size = len(_BEFORE_TIME) + 16 + len(after)
    return b"%x\r\n" % size + _BEFORE_TIME, after + b"\r\n"


_EVENT = _event_frame("null")
_LAST_EVENT = _event_frame('"stop"')


def answer(body: bytes, content_type: str = "application/json", status: str = "200 OK") -> bytes:
    """Return a whole response."""
    head = (
        f"HTTP/1.1 {status}\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
        f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def completion(size: int) -> bytes:
    """Return a chat completion of `size` bytes of body."""
    content = {"role": "assistant", "content": ""}
    body: dict[str, object] = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion",
        "created": 1767225600,
        "model": MODEL,
        "choices": [{"index": 0, "message": content, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 100, "total_tokens": 300},
    }
    content["content"] = "x" * max(0, size - len(json.dumps(body)))
    return answer(json.dumps(body).encode())


@dataclass(frozen=True, slots=True)
class Script:
    """The one answer that every POST gets.

    `events` 0: the JSON `reply`. Else a stream of so many events, one each `interval` seconds
    (0: as fast as it goes), the first at once. `hold`: silence after the first event.
    """

    events: int
    interval: float
    hold: bool
    reply: bytes


class Replica:
    """One port. With an interval it steps as an engine does: an event for every stream at once."""

    def __init__(self, script: Script, phase: float) -> None:
        self.script = script
        self.phase = phase
        self.streams: dict[Connection, None] = {}
        self.requests = self.aborted = self.cut_bodies = 0
        self.page = METRICS_PAGE.read_bytes()
        self._loop = asyncio.get_running_loop()
        self._next_step = 0.0
        self._stepping = False

    def add(self, stream: "Connection") -> None:
        """Begin to step the stream."""
        self.streams[stream] = None
        if self.script.interval and not self.script.hold and not self._stepping:
            self._stepping = True
            # Whole intervals after the phase, so that the replicas step one after another.
            interval = self.script.interval
            turns = (self._loop.time() - self.phase) // interval + 1
            self._next_step = turns * interval + self.phase
            self._loop.call_at(self._next_step, self._step)

    def _step(self) -> None:
        for stream in list(self.streams):
            stream.event()
        self._stepping = bool(self.streams)
        if self._stepping:
            self._next_step += self.script.interval
            self._loop.call_at(self._next_step, self._step)

    def metrics(self) -> bytes:
        """Return a page of a real engine's size, with this replica's count in it."""
        page = _RUNNING.sub(rb"\g<1>%d.0" % len(self.streams), self.page, count=1)
        return _WAITING.sub(rb"\g<1>0.0", page, count=1)

    def counts(self) -> dict[str, int]:
        """Return what the report needs to know of this replica."""
        return {
            "requests": self.requests,
            "aborted": self.aborted,
            "cut_bodies": self.cut_bodies,
            "events_under_way": sum(self.script.events - each.events_left for each in self.streams),
        }


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.transport: asyncio.WriteTransport
        self.head = b""
        self.body_left = 0  # bytes; -1 while a chunked body arrives
        self.tail = b""
        self.events_left = 0
        self.owed = 0
        self.blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self in self.replica.streams:
            del self.replica.streams[self]
            self.replica.aborted += 1
        self.events_left = 0

    def data_received(self, data: bytes) -> None:
        if self.body_left:
            self._body(data)
            return
        data = self.head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self.head = data
            return
        self.head = b""
        if not data.startswith(b"POST"):
            self.transport.write(self._page(data.split(b" ", 2)[1]))
            return
        head = data[:end].lower()
        length = _LENGTH.search(head)
        self.body_left = int(length[1]) if length is not None else -1
        self._body(data[end + 4 :])

    def _body(self, data: bytes) -> None:
        if self.body_left > 0:
            self.body_left -= len(data)
            self.tail = data[-1:] or self.tail
            if self.body_left > 0:
                return
            self.replica.cut_bodies += self.tail != b"}"
        else:
            self.tail = self.tail[-6:] + data[-7:]
            if not self.tail.endswith(b"\r\n0\r\n\r\n"):
                return
        self.body_left, self.tail = 0, b""
        self._begin()

    def _begin(self) -> None:
        self.replica.requests += 1
        script = self.replica.script
        if not script.events:
            self.transport.write(script.reply)
            return
        self.events_left, self.owed = script.events, 0
        self.transport.write(_STREAM_HEAD)
        self.event()
        if self.events_left:
            self.replica.add(self)
            if not script.interval and not script.hold:
                asyncio.get_running_loop().call_soon(self._pump)

    def event(self) -> None:
        """Write the next event, or owe it while the reader is behind."""
        if self.blocked:
            self.owed += 1
            return
        self.events_left -= 1
        if self.events_left > 0:
            before, after = _EVENT
            self.transport.write(before + b"%016x" % time.monotonic_ns() + after)
        elif self.events_left == 0:
            before, after = _LAST_EVENT
            self.transport.write(before + b"%016x" % time.monotonic_ns() + after + _DONE)
            self.replica.streams.pop(self, None)

    def _pump(self) -> None:
        if self.events_left > 0 and not self.blocked:
            self.event()
            asyncio.get_running_loop().call_soon(self._pump)

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        if not self.replica.script.interval:
            self._pump()
        while self.owed and not self.blocked and self.events_left > 0:
            self.owed -= 1
            self.event()

    def _page(self, path: bytes) -> bytes:
        pages: dict[bytes, Callable[[], bytes]] = {
            b"/health": lambda: answer(b""),
            b"/metrics": lambda: answer(self.replica.metrics(), "text/plain; version=0.0.4"),
            b"/version": lambda: answer(b'{"version":"0.32.0"}'),
            b"/counts": lambda: answer(json.dumps(self.replica.counts()).encode()),
            b"/v1/models": lambda: answer(
                json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
            ),
        }
        page = pages.get(path)
        return page() if page else answer(b'{"detail":"Not Found"}', status="404 Not Found")


async def serve(script: Script, count: int, indexes: range) -> None:
    """Be these of `count` replicas, print their ports as JSON, and serve until SIGTERM."""
    loop = asyncio.get_running_loop()
    ports = []
    for index in indexes:
        replica = Replica(script, phase=index * script.interval / count)
        server = await loop.create_server(partial(Connection, replica), "127.0.0.1", 0, backlog=4096)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps({"ports": ports}), flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8, help="replicas, one port each")
    parser.add_argument("--share", default="0/1", metavar="K/N", help="every Nth replica, from the Kth on")
    parser.add_argument("--events", type=int, default=0, help="of a stream; 0: a JSON answer")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds; 0: no pause")
    parser.add_argument("--reply-bytes", type=int, default=1024, help="size of a JSON answer")
    parser.add_argument("--hold", action="store_true", help="silence after the first event")
    arguments = parser.parse_args()
    script = Script(
        events=arguments.events,
        interval=arguments.interval,
        hold=arguments.hold,
        reply=completion(arguments.reply_bytes),
    )
    share, _, shares = arguments.share.partition("/")
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a collection would show as latency
    uvloop.run(serve(script, arguments.count, range(int(share), arguments.count, int(shares))))


if __name__ == "__main__":
    main()
