"""A load generator that costs next to nothing: closed loop, keep-alive, raw protocols.

It says on a JSON line that it is ready, and begins at the moment (of the system's monotonic clock) that
it reads from its input, so that several of them share one load. For each step it prints a line when the
window begins, one when it ends, so that whoever started it can read the proxy's CPU time at both moments,
and one of all times measured. With `--hold` it prints one when all streams are open.
"""

import argparse
import asyncio
import gc
import json
import re
import sys
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import cast

import uvloop

from benchmarks.cheap_engine import MARK, MODEL
from benchmarks.times import buckets
from replicarouter.tasks import TaskSet

DELAY_SAMPLE = 8  # the delay of the events of each so-manieth stream is looked at
RECONNECT_PAUSE = 0.1  # seconds
REPORT = 0.25  # seconds after a window, to report on it before the next step

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)")


@dataclass(slots=True)
class Tally:
    """What has happened so far. Times are nanoseconds."""

    awaited: int = 0  # streams after whose opening `all_open` is set
    all_open: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    events: int = 0
    reads: int = 0
    opened: int = 0  # streams that have shown their first event
    errors: Counter[str] = field(default_factory=Counter)
    latency: "array[int]" = field(default_factory=lambda: array("q"))
    ttft: "array[int]" = field(default_factory=lambda: array("q"))
    gaps: "array[int]" = field(default_factory=lambda: array("q"))
    delays: "array[int]" = field(default_factory=lambda: array("q"))

    def times(self) -> dict[str, "array[int]"]:
        """Return all that is measured, by the names of the report."""
        return {"latency": self.latency, "ttft": self.ttft, "itl": self.gaps, "delay": self.delays}


@dataclass(frozen=True, slots=True)
class Load:
    """What every connection does: send `request`, expect `events` events (0: a JSON answer)."""

    request: bytes
    events: int
    targets: list[tuple[str, int]]
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """When which users start: `share` of `shares` of each step's, from the moment `at` on."""

    at: float
    steps: tuple[int, ...]
    share: int
    shares: int
    spread: float
    warm: float
    seconds: float


def request_bytes(host: str, body_size: int, *, stream: bool) -> bytes:
    """Return a chat request whose body has `body_size` bytes."""
    message = {"role": "user", "content": ""}
    body: dict[str, object] = {
        "model": MODEL,
        "messages": [message],
        "max_tokens": 256,
        "stream": stream,
    }
    words = "What is a proxy good for, and what does it cost? "
    missing = max(0, body_size - len(json.dumps(body)))
    message["content"] = (words * (missing // len(words) + 1))[:missing]
    encoded = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n"
        f"User-Agent: cheap-client\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(encoded)}\r\n\r\n"
    )
    return head.encode() + encoded


class Connection(asyncio.Protocol):
    """One user: sends the request again as soon as the answer has ended."""

    def __init__(self, load: Load, tally: Tally, number: int) -> None:
        self.load = load
        self.tally = tally
        self.number = number
        self.transport: asyncio.Transport
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sample = number % DELAY_SAMPLE == 0
        self.head: bytes | None = b""
        self.left = -1  # bytes of a body of known length; -1: chunked
        self.seen = 0
        self.tail = b""
        self.sent_at = self.last_at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.lost.done():
            self.lost.set_result(None)

    def _send(self) -> None:
        self.head, self.left, self.seen, self.tail = b"", -1, 0, b""
        self.sent_at = time.monotonic_ns()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.tally.reads += 1
        if self.head is not None:
            data = self.head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.head = data
                return
            self._response_head(data[:end])
            data = data[end + 4 :]
        if self.load.events:
            self._count_events(data)
        if self.left >= 0:
            self.left -= len(data)
            if self.left <= 0:
                self._finished()
            return
        self.tail = self.tail[-4:] + data[-5:]
        if self.tail.endswith(b"0\r\n\r\n"):
            self._finished()

    def _response_head(self, head: bytes) -> None:
        self.head = None
        if head[9:12] != b"200":
            self.tally.errors[f"status {head[9:12].decode('latin1')}"] += 1
        length = _LENGTH.search(head.lower())
        self.left = int(length[1]) if length is not None else -1

    def _count_events(self, data: bytes) -> None:
        count = data.count(MARK)
        if not count:
            return
        now = time.monotonic_ns()
        tally = self.tally
        tally.events += count
        if not self.seen:
            tally.opened += 1
            if tally.opened == tally.awaited:
                tally.all_open.set()
            tally.ttft.append(now - self.sent_at)
            if self.load.stalled:
                self.transport.pause_reading()
        # The second event comes with the replica's next step, wherever in it the first one fell.
        elif self.seen > 1:
            tally.gaps.append(now - self.last_at)
        self.seen += count
        self.last_at = now
        if self.sample:
            self._look_at_delays(data, now)

    def _look_at_delays(self, data: bytes, now: int) -> None:
        for part in data.split(MARK)[1:]:
            digits = part[:16]
            try:
                self.tally.delays.append(now - int(digits, 16))
            except ValueError:
                continue  # a proxy that frames anew may have cut the number

    def _finished(self) -> None:
        tally = self.tally
        tally.requests += 1
        tally.latency.append(time.monotonic_ns() - self.sent_at)
        if self.seen != self.load.events:
            tally.errors["wrong number of events"] += 1
        self._send()


async def user(load: Load, tally: Tally, number: int) -> None:
    """Keep one connection busy for ever; a connection that ends is an error and is opened anew."""
    loop = asyncio.get_running_loop()
    host, port = load.targets[number % len(load.targets)]
    while True:
        try:
            _, connection = await loop.create_connection(lambda: Connection(load, tally, number), host, port)
            await connection.lost
            tally.errors["connection lost"] += 1
        except OSError as error:
            tally.errors[f"connect: {type(error).__name__}"] += 1
        await asyncio.sleep(RECONNECT_PAUSE)


def say(**facts: object) -> None:
    """Print one JSON line."""
    print(json.dumps(facts), flush=True)


async def start_users(users: TaskSet, load: Load, tally: Tally, numbers: range, plan: Plan) -> None:
    """Start those of the users that this process has, evenly over the spread."""
    for number in numbers[(plan.share - numbers.start) % plan.shares :: plan.shares]:
        await until(plan.at + plan.spread * (number - numbers.start) / len(numbers))
        users.start(user(load, tally, number), f"user {number}")
    await until(plan.at + plan.spread)


async def until(moment: float) -> None:
    """Sleep until `time.monotonic()` is there."""
    left = moment - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)


async def hold(load: Load, plan: Plan) -> None:
    """Open the streams, say when each has shown its first event, and keep them open."""
    numbers = range(plan.steps[-1])
    awaited = len(numbers[plan.share :: plan.shares])
    tally = Tally(awaited=awaited)
    if not awaited:
        tally.all_open.set()
    users = TaskSet()
    try:
        async with asyncio.timeout(plan.spread + plan.warm):
            await start_users(users, load, tally, numbers, plan)
            await tally.all_open.wait()
    except TimeoutError:
        tally.errors["streams not opened"] = awaited - tally.opened
    say(held=tally.opened, errors=tally.errors)
    await asyncio.sleep(plan.seconds)
    await users.close()


async def measure(load: Load, plan: Plan) -> None:
    """Load the target with more and more users, and report on a window of each step."""
    tally = Tally()
    users = TaskSet()
    started = 0
    for count in plan.steps:
        await start_users(users, load, tally, range(started, count), plan)
        started = count
        window_at = plan.at + plan.spread + plan.warm
        await until(window_at)
        await window(tally, window_at + plan.seconds)
        if count == plan.steps[-1]:
            await users.close()
        say(errors=tally.errors, **{name: buckets(times) for name, times in tally.times().items()})
        tally.errors.clear()
        plan = replace(plan, at=window_at + plan.seconds + REPORT)


async def window(tally: Tally, end: float) -> None:
    """Say when the window begins, and what was counted when it has ended."""
    for times in tally.times().values():
        del times[:]
    counted = (tally.requests, tally.events, tally.reads)
    began_at, cpu = time.monotonic(), time.process_time()
    say(begin=True)
    await until(end)
    seconds, cpu = time.monotonic() - began_at, time.process_time() - cpu
    now = (tally.requests, tally.events, tally.reads)
    requests, events, reads = (after - before for before, after in zip(counted, now, strict=True))
    say(requests=requests, events=events, reads=reads, seconds=seconds, cpu=cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True, help="of 127.0.0.1, comma-separated, in turn")
    parser.add_argument("--users", default="64", help="at each step, comma-separated")
    parser.add_argument("--share", default="0/1", metavar="K/N", help="every Nth user, from the Kth on")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--events", type=int, default=0, help="of a stream; 0: a JSON answer")
    parser.add_argument("--spread", type=float, default=0.0, help="seconds to start a step's users in")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before a window")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window")
    parser.add_argument("--hold", action="store_true", help="open streams and keep them open")
    parser.add_argument("--stalled", action="store_true", help="read nothing after the first event")
    arguments = parser.parse_args()
    targets = [("127.0.0.1", int(port)) for port in arguments.ports.split(",")]
    load = Load(
        request=request_bytes(
            f"127.0.0.1:{targets[0][1]}", arguments.body_bytes, stream=arguments.events > 0
        ),
        events=arguments.events,
        targets=targets,
        stalled=arguments.stalled,
    )
    share, _, shares = arguments.share.partition("/")
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a collection would show as latency
    say(ready=True)
    plan = Plan(
        at=float(sys.stdin.readline()),
        steps=tuple(int(count) for count in arguments.users.split(",")),
        share=int(share),
        shares=int(shares),
        spread=arguments.spread,
        warm=arguments.warm,
        seconds=arguments.seconds,
    )
    uvloop.run(hold(load, plan) if arguments.hold else measure(load, plan))


if __name__ == "__main__":
    main()
