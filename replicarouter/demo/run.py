"""The course of a demonstration: start everything, look at the ledger once a second, end everything."""

import asyncio
import math
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from itertools import count
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from replicarouter.demo.children import Child
from replicarouter.demo.figures import Look, Seen, Window
from replicarouter.demo.ledger import LedgerReader, LedgerReading
from replicarouter.demo.lines import PlainLines
from replicarouter.demo.options import DemoFailed, DemoOptions
from replicarouter.demo.screen import Screen
from replicarouter.demo.summary import UserTotals, summary
from replicarouter.loadgen.users import Users
from replicarouter.loadgen.workload import Workload

HOST = "127.0.0.1"
MODEL = "sim"
LOOK_INTERVAL = 1.0
SCRAPE_INTERVAL = LOOK_INTERVAL / 2
"""So that the engines' counts are hardly older than the router's own."""

AGREEMENT_TRIES = 10
"""Last looks at most, until the users and the router count alike."""

MISSED_LOOKS = 3
"""Looks in a row that the router may leave unanswered."""


class Display(Protocol):
    """Shows looks; a context manager."""

    def __enter__(self) -> Self:
        """Begin with the heading."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave the terminal as it was."""

    def show(self, look: Look) -> None:
        """Show this one."""


class Demo:
    """One demonstration. `run` returns its summary, or raises DemoFailed; nothing is left behind."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._port, self._admin_port = _free_ports(2)
        self._children: list[Child] = []
        self._users = Users(
            HOST, self._port, count=options.users, workload=Workload(model=MODEL), clock=time.perf_counter
        )
        self._window = Window(self._users.tally)
        self._seen = Seen()
        self._began_at = 0.0
        self._stopped = False
        self._scope: asyncio.Timeout | None = None

    async def run(self) -> str:
        """Run until the time is up or a SIGINT, SIGTERM or SIGHUP comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop)
        try:
            async with LedgerReader(f"http://{HOST}:{self._admin_port}") as reader:
                if not await self._unless_stopped(self._start(reader)):
                    return "stopped before the first request\n"
                return await self._show(reader)
        finally:
            await self._users.stop()
            for child in reversed(self._children):
                await child.stop()

    def _stop(self) -> None:
        self._stopped = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(0)

    async def _unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do `work`; False when a signal came first, which ends it."""
        try:
            async with asyncio.timeout(None) as self._scope:
                if self._stopped:
                    self._scope.reschedule(0)
                await work
        except TimeoutError:
            if self._scope is None or not self._scope.expired():
                raise
            return False
        finally:
            self._scope = None
        return True

    async def _start(self, reader: LedgerReader) -> None:
        options = self._options
        engines = self._child(
            "engines",
            *("engine", "--host", HOST, "--port", "0", "--count", str(options.replicas)),
            *("--model", MODEL, "--profile", options.profile),
        )

        async def addresses() -> list[str] | None:
            lines = [line.strip() for line in engines.output().splitlines()]
            found = [line for line in lines if line.startswith("http://")]
            return found if len(found) == options.replicas else None

        urls = await engines.until(addresses)
        router = self._child(
            "router",
            *("serve", "--host", HOST, "--port", str(self._port)),
            *("--admin-host", HOST, "--admin-port", str(self._admin_port)),
            *("--policy", options.policy, "--connector-limit", str(options.connector_limit)),
            *("--scrape-interval", str(SCRAPE_INTERVAL), "--log-level", "warning"),
            *(word for url in urls for word in ("--replica", url)),
        )

        async def all_ready() -> LedgerReading | None:
            reading = await reader.read()
            ready = reading is not None and all(row.state == "ready" for row in reading.replicas)
            return reading if ready else None

        await router.until(all_ready)

    def _child(self, name: str, *arguments: str) -> Child:
        child = Child(name, arguments)
        self._children.append(child)
        return child

    async def _show(self, reader: LedgerReader) -> str:
        self._began_at = time.perf_counter()
        self._users.start()
        with self._display() as display:
            await self._unless_stopped(self._watch(reader, display))
            totals = await self._last_look(reader, display)
        seconds = time.perf_counter() - self._began_at
        return summary(self._seen, totals, seconds=seconds)

    def _display(self) -> Display:
        heading = self._heading()
        if sys.stdout.isatty():
            return Screen(heading, Console())
        return PlainLines(heading, sys.stdout)

    def _heading(self) -> str:
        options = self._options
        limit = options.connector_limit or "none"
        return (
            f"{options.users} users -> router -> {options.replicas} simulated replicas "
            f"({options.profile})\n"
            f"  policy   {options.policy}, connector limit {limit}\n"
            f"  clients  http://{HOST}:{self._port}\n"
            f"  status   http://{HOST}:{self._admin_port}/\n"
            f"  ledger   http://{HOST}:{self._admin_port}/admin/ledger\n"
            f"  metrics  http://{HOST}:{self._admin_port}/metrics\n"
            f"  ask      replicarouter diagnose --router http://{HOST}:{self._port}"
        )

    async def _watch(self, reader: LedgerReader, display: Display) -> None:
        """Look once a second until the time is up, which is left for the last look."""
        missed = 0
        end = self._options.seconds or math.inf
        for number in count(1):
            moment = min(number * LOOK_INTERVAL, end)
            await asyncio.sleep(self._began_at + moment - time.perf_counter())
            for child in self._children:
                child.check()
            if moment == end:
                return
            reading = await reader.read()
            if reading is None:
                missed += 1
            else:
                missed = 0
                await self._present(reading, reader, display)
            if missed == MISSED_LOOKS:
                raise DemoFailed("the router does not answer at its admin port")

    async def _last_look(self, reader: LedgerReader, display: Display) -> UserTotals:
        """Look until the users and the router count alike: what is on its way between them is neither's."""
        for _ in range(AGREEMENT_TRIES):
            reading = await reader.read()
            totals = UserTotals.of(self._users.tally)
            if reading is None or (reading.received, reading.accepted) == (totals.started, totals.in_flight):
                break
        if reading is not None:
            await self._present(reading, reader, display)
        return totals

    async def _present(self, reading: LedgerReading, reader: LedgerReader, display: Display) -> None:
        self._seen.note(reading)
        page = await reader.page()
        if page is not None:
            self._seen.pages.append((time.perf_counter(), page))
        seconds = time.perf_counter() - self._began_at
        display.show(Look(seconds, reading, self._window.look(seconds)))


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; all are held until the last is found, so that they differ."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind((HOST, 0))
            ports.append(listener.getsockname()[1])
        return ports
