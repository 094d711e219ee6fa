"""A router between scripted ends: replicas and a client on real sockets, which do one thing after another.

Every step waits until the router has come to rest, so that what it does for one request, or for one event of
a stream, depends on no timing: each arrives in one read, and nothing else happens meanwhile.
"""

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.call_router import CUT, START, STOP
from benchmarks.cheap_client import request_bytes
from benchmarks.cheap_engine import METRICS_PAGE, MODEL, answer, completion
from benchmarks.processes import REPOSITORY

PATIENCE = 120.0
"""Seconds in which any step comes about."""

LAST_WORDS = 3000
"""Characters of the router's log that are shown when it fails."""

REPLICAS = 8


class Failed(Exception):
    """The router did not do what was asked of it."""


_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def event(finish_reason: str | None = None, usage: Mapping[str, int] | None = None) -> bytes:
    """One event of a stream, a chunk of its own."""
    document: dict[str, object] = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "delta": {"content": " token"},
                "logprobs": None,
                "finish_reason": finish_reason,
                "token_ids": None,
            }
        ],
    }
    if usage is not None:
        document |= {"choices": [], "usage": usage}
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


PAGES = {
    b"/health": answer(b""),
    b"/metrics": answer(METRICS_PAGE.read_bytes(), "text/plain; version=0.0.4"),
    b"/version": answer(b'{"version":"0.32.0"}'),
    b"/v1/models": answer(
        json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
    ),
}
_NO_PAGE = answer(b'{"detail":"Not Found"}', status="404 Not Found")


@dataclass(eq=False, slots=True)
class _Peer:
    """A connection from the router, and what of a request has come on it."""

    connection: socket.socket
    data: bytearray = field(default_factory=bytearray)

    def request(self) -> bytes | None:
        """The next whole request; None when more of it is to come."""
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self.data, 0, end + 2)
        size = end + 4 + (int(length[1]) if length is not None else 0)
        if len(self.data) < size:
            return None
        request = bytes(self.data[:size])
        del self.data[:size]
        return request


class Ends:
    """The replicas, the client and the wire; `pump` lets happen what comes by itself."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self._selector = selectors.DefaultSelector()
        self._ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(REPLICAS)]
        for port in self._ports:
            self._selector.register(port, selectors.EVENT_READ, self._accept)
        self._peers: set[_Peer] = set()
        self.asked: list[_Peer] = []
        self.scraped = 0
        self._client: socket.socket | None = None

    @property
    def urls(self) -> list[str]:
        """Where the replicas are."""
        return [f"http://127.0.0.1:{port.getsockname()[1]}" for port in self._ports]

    def connect(self) -> None:
        """Have a client come in, once the router says on the wire where it listens."""
        self.until(self.wire)
        port = self.wire.recv(64)
        if not port:
            raise Failed("it does not start")
        self._client = socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE)

    def close(self) -> None:
        """Let go of everything."""
        for end in (*self._ports, *(peer.connection for peer in self._peers), self._client):
            if end is not None:
                end.close()
        self._selector.close()

    def until(self, awaited: socket.socket) -> None:
        """Serve the replicas' pages until something comes on this socket."""
        self._selector.register(awaited, selectors.EVENT_READ, None)
        try:
            while awaited not in self._pump():
                pass
        finally:
            self._selector.unregister(awaited)

    def tell(self, word: bytes) -> None:
        """Say something on the wire, and wait for its echo."""
        self.wire.sendall(word)
        self.until(self.wire)
        if self.wire.recv(1) != word:
            raise Failed("it has ended")

    def ask(self, request: bytes) -> _Peer:
        """Send a request; returns the connection on which it reached a replica."""
        assert self._client is not None
        self._client.sendall(request)
        self._selector.register(self._client, selectors.EVENT_READ, None)
        while not self.asked:
            if self._client in self._pump():
                raise Failed(f"no replica was asked, and the client got {self._client.recv(2000)!r}")
        self._selector.unregister(self._client)
        return self.asked.pop()

    def reply(self, peer: _Peer, data: bytes) -> None:
        """Have a replica write `data`, and the client read until it ends as that does."""
        assert self._client is not None
        peer.connection.sendall(data)
        end, seen = data[-64:], b""
        while not seen.endswith(end):
            more = self._client.recv(1 << 18)
            if not more:
                raise Failed("it closed the client's connection")
            seen = seen[-64:] + more

    def _pump(self) -> Sequence[object]:
        ready = self._selector.select(PATIENCE)
        if not ready:
            raise Failed("nothing happens")
        for key, _ in ready:
            if callable(key.data):
                key.data(key.fileobj)
            elif isinstance(key.data, _Peer):
                self._read(key.data)
        return [key.fileobj for key, _ in ready if key.data is None]

    def _accept(self, port: socket.socket) -> None:
        connection, _ = port.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(connection)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        data = peer.connection.recv(1 << 18)
        if not data:
            self._selector.unregister(peer.connection)
            peer.connection.close()
            self._peers.discard(peer)
            return
        peer.data += data
        while (request := peer.request()) is not None:
            if request.startswith(b"POST"):
                self.asked.append(peer)
                continue
            path = request.split(b" ", 2)[1]
            self.scraped += path == b"/metrics"
            peer.connection.sendall(PAGES.get(path, _NO_PAGE))


@dataclass(frozen=True, slots=True)
class Play:
    """What is done: `requests` of them, each answered by so many `events` of a stream (0: by a document)."""

    policy: str
    requests: int
    events: int

    @property
    def warm(self) -> int:
        """Requests before the first that counts: every replica has had some."""
        return 5 * REPLICAS


@dataclass(frozen=True, slots=True)
class Stage:
    """A running router and its ends."""

    ends: Ends
    router: "subprocess.Popen[bytes]"
    play: Play

    def perform(self, requests: int, cut: bytes = b"", events: int | None = None) -> None:
        """Send so many requests, with a word on the wire after each and after each event; of these there are
        `events`, or as many as the play has."""
        play, ends = self.play, self.ends
        request = request_bytes("router", 1024, stream=bool(play.events))
        document = completion(1024)
        for _ in range(requests):
            peer = ends.ask(request)
            if not play.events:
                ends.reply(peer, document)
            else:
                self._stream(peer, cut, play.events if events is None else events)
            if cut:
                ends.tell(cut)

    def _stream(self, peer: _Peer, cut: bytes, events: int) -> None:
        """A head with the first event, so many more, and one with what ends a stream."""
        ends, token = self.ends, event()
        ends.reply(peer, _STREAM_HEAD + token)
        for _ in range(events):
            if cut:
                ends.tell(cut)
            ends.reply(peer, token)
        if cut:
            ends.tell(cut)
        used = {"prompt_tokens": 200, "total_tokens": 300, "completion_tokens": 100}
        ends.reply(peer, event("stop") + event(usage=used) + _STREAM_END)

    def settle(self) -> None:
        """Wait until everything has been looked at once, and the router knows its ways."""
        while self.ends.scraped < REPLICAS:
            self.ends._pump()  # noqa: SLF001
        self.ends.tell(CUT)
        self.perform(self.play.warm, CUT, events=1)


@contextmanager
def stage(play: Play, *, report: Path | None, before: Sequence[str] = ()) -> Iterator[Stage]:
    """A router under a counter that writes to `report`, or uncounted after the words `before`.

    Raises Failed, with the end of the router's log.
    """
    ours, theirs = socket.socketpair()
    ends = Ends(ours)
    with ours, theirs, tempfile.TemporaryFile() as log:
        command = [*before, sys.executable, "-m", "benchmarks.call_router", "--wire", str(theirs.fileno())]
        command += ["--policy", play.policy, *(word for url in ends.urls for word in ("--replica", url))]
        command += ["--uncounted"] if report is None else ["--report", str(report)]
        router = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
            # The order of a set of names, and with it how much is compared, is the same in each run.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        theirs.close()
        try:
            ends.connect()
            yield Stage(ends, router, play)
            _end(router, ours)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            log.seek(0)
            last = log.read().decode(errors="replace")[-LAST_WORDS:]
            raise Failed(f"{error}; the router's last words:\n{last}") from error
        finally:
            router.kill()
            router.wait()
            ends.close()


def _end(router: "subprocess.Popen[bytes]", wire: socket.socket) -> None:
    wire.sendall(STOP)
    if status := router.wait(PATIENCE):
        raise Failed(f"it ended with status {status}")


def counted(play: Play) -> list[dict[str, Any]]:
    """A sample for each request, or for each event of each stream between its first and its last."""
    with tempfile.TemporaryDirectory(prefix="call-cost-") as folder:
        report = Path(folder) / "report.json"
        with stage(play, report=report) as on:
            on.settle()
            on.ends.tell(START)
            # What is traced for the first time may be traced in part.
            on.perform(2, CUT)
            on.perform(play.requests, CUT)
        samples: list[dict[str, Any]] = json.loads(report.read_text())
    return samples[-play.requests * (play.events + 2 if play.events else 1) :]
