"""Users of a soak: they ask, read slowly, leave early, and check every token of what they get."""

import asyncio
import json
import random
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak_fleet import HOST
from replicarouter.simulator.api import Api
from replicarouter.simulator.fields import Fields
from replicarouter.simulator.records import NONCE_HEADER
from replicarouter.simulator.tokens import text_of

MODEL = "sim"
API = Api(MODEL, 32768)
LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)

OK, LEFT, CUT, LOST, HUNG, MIXED = "ok", "client_gone", "cut", "lost", "hung", "mixed"
"""How a request went as its client saw it; or the code of an explained error, or `upstream_error`.

cut: the connection ended within an event or a body, which no client can take for an end. lost: it ended
without an answer, or between two events without a word. mixed: a token that is not its own."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What users are like. Shares are of requests."""

    streamed: float = 0.8
    leaving: float = 0.15
    slow: float = 0.05
    shortest: int = 4
    longest: int = 120
    pause: float = 0.5  # most seconds between two requests
    patience: float = 60.0  # seconds of silence after which a request counts as hung


@dataclass(frozen=True, slots=True)
class Question:
    """One request, and the answer that is right for it."""

    nonce: str
    stream: bool
    raw: bytes
    text: str


def question(nonce: str, tokens: int, *, stream: bool) -> Question:
    """A request whose every word follows from its nonce."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Say what follows from {nonce}."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    (plan,) = API.chat(Fields(body)).plans
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"X-Request-Id: {nonce}\r\n{NONCE_HEADER}: {nonce}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return Question(nonce, stream, head.encode() + content, text_of(plan.seed, 0, plan.text))


class Ended(Exception):
    """The connection ended; `between`: after a whole event or before anything, not in the midst of one."""

    def __init__(self, between: bool) -> None:
        super().__init__()
        self.between = between


@dataclass(slots=True)
class Tally:
    """What all users saw."""

    outcomes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    tokens: int = 0
    begun: int = 0

    def note(self, outcome: str, nonce: str, detail: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if outcome not in (OK, LEFT):
            told = self.examples.setdefault(outcome, [])
            if len(told) < 20:
                told.append(f"{nonce}: {detail}")


class Users:
    """Many users in a closed loop against one port, until they are told to stop."""

    def __init__(self, port: int, habits: Habits, seed: int) -> None:
        self.tally = Tally()
        self._port = port
        self._habits = habits
        self._seed = seed
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, count: int) -> None:
        self._tasks = [asyncio.ensure_future(self._user(number)) for number in range(count)]

    async def stop(self, patience: float) -> None:
        """Let them end what they have begun; what then still goes on counts as hung."""
        self._stopping.set()
        await asyncio.wait(self._tasks, timeout=patience)
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, asyncio.CancelledError):
                self.tally.note(HUNG, "?", "still under way at the end")
            elif isinstance(ended, BaseException):
                raise ended

    async def _user(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        line = Line(self._port)
        await asyncio.sleep(chance.uniform(0, 10 * self._habits.pause))
        turn = 0
        try:
            while not self._stopping.is_set():
                turn += 1
                if chance.random() < 0.2:
                    await line.leave()
                    line = Line(self._port)
                if not await self._turn(line, f"s{self._seed}-u{number}-{turn}", chance):
                    line = Line(self._port)
                await asyncio.sleep(chance.uniform(0, self._habits.pause))
        finally:
            await line.leave()

    async def _turn(self, line: "Line", nonce: str, chance: random.Random) -> bool:
        """A request of a kind that comes of chance; whether its connection can serve another."""
        habits = self._habits
        tokens = chance.randint(habits.shortest, habits.longest)
        asked = question(nonce, tokens, stream=chance.random() < habits.streamed)
        leaves_after = chance.uniform(0, tokens / 10) if chance.random() < habits.leaving else None
        slow = chance.random() < habits.slow
        self.tally.begun += 1
        return await self._ask(line, asked, leaves_after, slow)

    async def _ask(self, line: "Line", asked: Question, leaves_after: float | None, slow: bool) -> bool:
        """One request, noted; whether its connection can serve another."""
        try:
            async with asyncio.timeout(leaves_after):
                outcome, detail = await line.answer(asked, self._habits.patience, slow=slow)
        except TimeoutError:
            await line.leave(rudely=int(asked.nonce[-1], 36) % 2 == 0)
            self.tally.note(LEFT, asked.nonce, "")
            return False
        self.tally.tokens += line.tokens
        self.tally.note(outcome, asked.nonce, detail)
        if outcome in (CUT, LOST, HUNG, MIXED) or not line.reusable:
            await line.leave()
            return False
        return True


class Line:
    """One client connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._silence = 0.0
        self._slow = False
        self.tokens = 0
        self.reusable = True

    async def leave(self, *, rudely: bool = False) -> None:
        """FIN, or RST, whatever is still to come; nothing if the connection is over."""
        if self._writer is None:
            return
        if rudely and not self._writer.transport.is_closing():
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT_AT_ALL)
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def answer(self, asked: Question, silence: float, *, slow: bool) -> tuple[str, str]:
        """Ask, and judge the answer: an outcome and a word on it."""
        self._silence, self._slow, self.tokens = silence, slow, 0
        began = time.monotonic()
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=1 << 20)
            self._writer.write(asked.raw)
            status, headers = await self._head()
            self.reusable = headers.get("connection", "").lower() != "close"
            if status == 200 and asked.stream and "event-stream" in headers.get("content-type", ""):
                return await self._stream(asked)
            return self._document(asked, status, await self._body(headers))
        except Ended as ended:
            after = f"after {time.monotonic() - began:.2f} s and {self.tokens} tokens"
            return (LOST if ended.between else CUT), after
        except OSError as error:
            return LOST, repr(error)
        except _Silence:
            return HUNG, f"{silence:g} s of silence after {self.tokens} tokens"

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._read(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _stream(self, asked: Question) -> tuple[str, str]:
        """Read the events of a stream, each as it comes."""
        heard, pending, chunks = Hearing(asked), b"", 0
        try:
            while chunk := await self._chunk(between=not pending):
                *events, pending = (pending + chunk).split(b"\n\n")
                for event in events:
                    heard.take(event)
                self.tokens = heard.tokens
                chunks += 1
                if self._slow and chunks % 20 == 0:
                    await asyncio.sleep(2)
        except Ended:
            self.reusable = False
            if heard.failure is None:
                raise
        return heard.verdict()

    def _document(self, asked: Question, status: int, body: bytes) -> tuple[str, str]:
        document = json.loads(body)
        if status != 200:
            return _explained(document.get("error", {}), status)
        if not _names(document, asked.nonce):
            return MIXED, f"id {document.get('id')}"
        text = document["choices"][0]["message"]["content"]
        self.tokens = document["usage"]["completion_tokens"]
        return (OK, "") if text == asked.text else (MIXED, f"{text[:50]!r}")

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._read(int(headers["content-length"]), between=False)
        parts = []
        while chunk := await self._chunk(between=False):
            parts.append(chunk)
        return b"".join(parts)

    async def _chunk(self, *, between: bool) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        line = await self._read(b"\r\n", between=between)
        data = await self._read(int(line.split(b";")[0], 16) + 2, between=False)
        return data[:-2]

    async def _read(self, what: bytes | int, *, between: bool = True) -> bytes:
        assert self._reader is not None
        reading = self._reader.readuntil(what) if isinstance(what, bytes) else self._reader.readexactly(what)
        try:
            async with asyncio.timeout(self._silence):
                return await reading
        except asyncio.IncompleteReadError as cut:
            raise Ended(between and not cut.partial) from None
        except TimeoutError:
            raise _Silence from None
        except ConnectionError:
            raise Ended(between) from None


class Hearing:
    """The events of one stream, checked against what was to come."""

    def __init__(self, asked: Question) -> None:
        self.tokens = 0
        self.failure: tuple[str, str] | None = None
        self._asked = asked
        self._place = 0
        self._done = False

    def take(self, event: bytes) -> None:
        """One whole event. Comments count for nothing."""
        if event == b"data: [DONE]":
            self._done = True
        elif event.startswith(b"data: ") and self.failure is None:
            document = json.loads(event[6:])
            self.failure = _explained(document["error"]) if "error" in document else self._check(document)

    def verdict(self) -> tuple[str, str]:
        """How a stream went that has ended regularly, or with an error."""
        if self.failure is not None:
            return self.failure
        if not self._done or self._place != len(self._asked.text):
            return LOST, f"a clean end after {self._place} of {len(self._asked.text)} characters"
        return OK, ""

    def _check(self, document: dict[str, Any]) -> tuple[str, str] | None:
        if not _names(document, self._asked.nonce):
            return MIXED, f"id {document.get('id')}"
        text = document["choices"][0]["delta"].get("content") if document["choices"] else ""
        if not text:
            return None
        if not self._asked.text.startswith(text, self._place):
            return MIXED, f"at {self._place}: {text!r}"
        self._place += len(text)
        self.tokens += 1
        return None


class _Silence(Exception):
    """Nothing came for too long."""


def _names(document: dict[str, Any], nonce: str) -> bool:
    """Whether an answer's id is that of this request, or of a retry of it."""
    return str(document.get("id", "")).startswith(f"chatcmpl-{nonce}")


def _explained(error: object, status: int = 0) -> tuple[str, str]:
    """The outcome of an error that was told: the router's code, or that the engine said it itself."""
    code = error.get("code") if isinstance(error, dict) else None
    return (code if isinstance(code, str) else "upstream_error"), f"{status} {str(error)[:300]}"
