"""The router that `call_cost` counts: the product on its usual loop, and a wire on which it is told when.

Time stands still for it but for a microsecond with each look at the clock, and nothing runs for its own sake:
what a busy machine delays would be counted otherwise.
"""

import argparse
import asyncio
import gc
import json
import logging
import socket
import sys
from asyncio import futures
from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import uvloop

from benchmarks.call_counter import Counter, Sample
from replicarouter.app import Router
from replicarouter.settings.load import load_settings
from replicarouter.tasks import every
from replicarouter.telemetry import access_log, logs
from replicarouter.telemetry.lag import LoopLag

START, CUT, STOP = b"s", b"c", b"e"
"""What the wire says. Each is answered with one byte when the router has come to rest; after the last it
writes its report and ends."""

ROUNDS = 12
"""Turns of the loop, each with a look at all sockets, after which nothing is left to do."""

MICROSECOND = 1e-6
PACKAGE = "replicarouter"

LONG = 1e6
"""Seconds."""


class Wire:
    """Answers the other end between two requests."""

    def __init__(self, end: socket.socket, counter: Counter, *, counting: bool) -> None:
        self._end = end
        self._counter = counter
        self._counting = counting
        self._loop = asyncio.get_running_loop()
        self._word = b""
        self._base: FrameType | None = None
        self.samples: list[Sample] = []
        self.ended = asyncio.Event()
        self._loop.add_reader(end.fileno(), self._told)

    def _told(self) -> None:
        self._base = sys._getframe(1)  # noqa: SLF001
        self._word = self._end.recv(1)
        self._rest(ROUNDS)

    def _rest(self, rounds: int) -> None:
        if rounds:
            self._loop.call_soon(self._rest, rounds - 1)
            return
        if self._counting:
            self._act()
        if self._word in (STOP, b""):
            self.ended.set()
        else:
            self._end.send(self._word)

    def _act(self) -> None:
        if self._word == START:
            assert self._base is not None
            self._counter.start(self._base)
        elif self._word == CUT:
            self.samples.append(self._counter.cut())
        else:
            self._counter.stop()


OWN: tuple[CodeType, ...] = tuple(
    function.__code__
    for function in (
        *(Wire._told, Wire._rest),  # noqa: SLF001
        *(every, LoopLag.watch, vars(futures)["_set_result_unless_cancelled"]),
    )
)
"""With these begin the turns of the loop that no request is the cause of; the last is the end of a sleep."""


def flags(replicas: Sequence[str], policy: str) -> dict[str, object]:
    """Everything on that the product has on as shipped; what happens by itself comes never."""
    return {
        "port": 0,
        "admin.port": 0,
        "policy": policy,
        "replicas": [{"url": url, "name": f"replica-{index}"} for index, url in enumerate(replicas)],
        "connector.limit": 16384,
        "connector.keepalive": LONG,
        "timeouts.client_keepalive": LONG,
        "timeouts.client_head": LONG,
        "timeouts.client_body": LONG,
        "timeouts.client_write": LONG,
        "health.interval": LONG,
        "health.timeout": LONG,
        "scrape.interval": LONG,
        # One is recorded while it warms up, as few are at full speed.
        "policy_options.decisions_per_second": 1,
    }


async def serve(arguments: argparse.Namespace) -> None:
    """Tell the port, and do as the wire says."""
    settings = load_settings(
        flags=flags(arguments.replica, arguments.policy), environ={}, config=None
    ).settings
    logs.set_up("info", "json")
    # So that each line is counted with its request.
    access_log.MOST_KEPT = 1
    router = Router(settings, clock=count(1000.0, MICROSECOND).__next__)
    await router.start()
    with socket.socket(fileno=arguments.wire) as end:
        counter = Counter(OWN)
        wire = Wire(end, counter, counting=not arguments.uncounted)
        gc.collect()
        gc.freeze()
        gc.disable()
        end.send(f"{router.port}\n".encode())
        await wire.ended.wait()
        asyncio.get_running_loop().remove_reader(end.fileno())
    if arguments.report is not None:
        documents = [document(sample, counter.made) for sample in wire.samples]
        arguments.report.write_text(json.dumps(documents))
    await router.stop()
    logging.shutdown()


def document(sample: Sample, made: Mapping[CodeType, str]) -> dict[str, Any]:
    """A sample by names; those of functions that were made of text say whose they are."""

    def name(code: CodeType) -> str:
        return made.get(code) or name_of(code)

    rows: dict[str, list[int]] = {}
    for code, row in sample.rows.items():
        known = rows.setdefault(name(code), [0] * len(row))
        rows[name(code)] = [one + other for one, other in zip(known, row, strict=True)]
    turns: Counts[str] = Counts()
    for code, number in sample.turns.items():
        turns[name(code)] += number
    c_calls: Counts[str] = Counts()
    for (code, callee), number in sample.c_calls.items():
        c_calls[f"{name(code)} -> {callee}"] += number
    return {"rows": rows, "turns": turns, "c_calls": c_calls}


def name_of(code: CodeType) -> str:
    """The file of a function below its package, and the function: `aiohttp/web_log.py:AccessLogger.log`."""
    parts = Path(code.co_filename).parts
    for root in ("site-packages", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        if root in parts:
            return f"{'/'.join(parts[_last(parts, root) + 1 :])}:{code.co_qualname}"
    if PACKAGE in parts:
        parts = parts[_last(parts, PACKAGE) :]
    return f"{'/'.join(parts)}:{code.co_qualname}"


def _last(parts: Sequence[str], part: str) -> int:
    return len(parts) - 1 - parts[::-1].index(part)


def main() -> None:
    """Serve as `benchmarks.call_stage` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--wire", type=int, required=True, help="descriptor of a stream socket")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--replica", action="append", required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--uncounted", action="store_true", help="somebody else counts")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
