"""What does the status page cost? The CPU time of a router with one viewer and without, in turn, while users
stream through it and while nobody does.

    python -m benchmarks.page_cost
    python -m benchmarks.page_cost --users 1024 --repetitions 7 --seconds 30

Router and engines are processes; users and viewer are this one.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.processes import Session
from benchmarks.proxies import free_port
from replicarouter.loadgen.users import Users
from replicarouter.loadgen.workload import Workload

HOST = "127.0.0.1"
MODEL = "sim"

BUDGET = 0.01
"""Share of a core that a viewer may cost."""

STARTS = 30.0
"""Seconds for the router to be ready."""

WARM, SETTLE = 5.0, 1.0
"""Seconds before the first window, and after a viewer came or left."""


@dataclass(frozen=True, slots=True)
class Window:
    """What the router used, and what went through it. All are by the second."""

    cpu: float
    events: float
    documents: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows that follow one another."""

    without: Window
    viewed: Window

    @property
    def cost(self) -> float:
        """The share of a core that the viewer costs: users are a closed loop, and may bring more or less."""
        more = self.viewed.events / self.without.events if self.without.events else 1.0
        return self.viewed.cpu - self.without.cpu * more


@dataclass(slots=True)
class Viewer:
    """Looks at the page, as a browser does that draws nothing."""

    port: int
    documents: int = 0

    async def look(self) -> None:
        """Read documents until cancelled."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(b"GET /admin/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while data := await reader.read(1 << 16):
                self.documents += data.count(b"data: ")
        finally:
            writer.close()


@dataclass(frozen=True, slots=True)
class Place:
    """A running router and who uses it."""

    router: Session
    viewer: Viewer
    users: Users

    async def window(self, seconds: float) -> Window:
        """Watch for so long."""
        before, events, documents = self.router.cpu(), self.users.tally.events, self.viewer.documents
        start = time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - start
        return Window(
            cpu=(self.router.cpu() - before).total / took,
            events=(self.users.tally.events - events) / took,
            documents=(self.viewer.documents - documents) / took,
        )

    async def viewed(self, seconds: float) -> Window:
        """Watch for so long while somebody looks at the page."""
        viewer = asyncio.create_task(self.viewer.look())
        try:
            await asyncio.sleep(SETTLE)
            return await self.window(seconds)
        finally:
            viewer.cancel()
            with suppress(asyncio.CancelledError):
                await viewer
            await asyncio.sleep(SETTLE)

    async def pair(self, seconds: float, number: int) -> Pair:
        """Both, with another one first each time."""
        if number % 2:
            viewed = await self.viewed(seconds)
            return Pair(await self.window(seconds), viewed)
        return Pair(await self.window(seconds), await self.viewed(seconds))


def main() -> int:
    """Measure, print the table, and return 1 if a viewer costs more than it may."""
    arguments = parse()
    os.sched_setaffinity(0, {arguments.tool_core})
    head = f"{'users':>6}{'events/s':>10}{'without':>10}{'with':>10}"
    print(f"{head}   {'a viewer costs, of one core':<32}seen/s")
    dear = False
    for users in (arguments.users, 0):
        pairs = asyncio.run(measure(users, arguments))
        print(row(users, pairs), flush=True)
        dear = dear or statistics.median(pair.cost for pair in pairs) > BUDGET
    if dear:
        print(f"A viewer costs more than {BUDGET:.0%} of a core.")
    return int(dear)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--users", type=int, default=256, metavar="N")
    parser.add_argument("--replicas", type=int, default=8, metavar="N")
    parser.add_argument("--speed", type=float, default=0.1, help="of the engines (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a window (default %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--router-core", type=int, default=0, metavar="CORE")
    parser.add_argument("--tool-core", type=int, default=1, metavar="CORE")
    return parser.parse_args()


def row(users: int, pairs: Sequence[Pair]) -> str:
    """One line of the table: medians over the repetitions, and the range of what a viewer costs."""
    costs = [pair.cost for pair in pairs]
    without = statistics.median(pair.without.cpu for pair in pairs)
    viewed = statistics.median(pair.viewed.cpu for pair in pairs)
    events = statistics.median(pair.without.events for pair in pairs)
    seen = statistics.median(pair.viewed.documents for pair in pairs)
    found = f"{statistics.median(costs):.2%}  ({min(costs):.2%} to {max(costs):.2%})"
    return f"{users:>6}{events:>10,.0f}{without:>10.2%}{viewed:>10.2%}   {found:<32}{seen:.2f}"


async def measure(users: int, arguments: argparse.Namespace) -> list[Pair]:
    """Start everything, and watch it with a viewer and without, in turn."""
    async with place(users, arguments) as found:
        await asyncio.sleep(WARM)
        return [await found.pair(arguments.seconds, number) for number in range(arguments.repetitions)]


@asynccontextmanager
async def place(count: int, arguments: argparse.Namespace) -> AsyncIterator[Place]:
    """Fresh engines, a fresh router, and so many users of it."""
    python = (sys.executable, "-m", "replicarouter")
    with tempfile.TemporaryDirectory(prefix="page-cost-") as folder:
        simulated = ("--port", "0", "--count", str(arguments.replicas), "--model", MODEL)
        engines = Session(
            [*python, "engine", *simulated, "--speed", str(arguments.speed)],
            core=arguments.tool_core,
            log=Path(folder) / "engines.log",
            stdout=subprocess.PIPE,
        )
        try:
            port, admin_port = free_port(), free_port()
            replicas = [word for url in addresses(engines, arguments.replicas) for word in ("--replica", url)]
            ports = ("--port", str(port), "--admin-port", str(admin_port))
            router = Session(
                [*python, "serve", *ports, "--log-level", "error", *replicas],
                core=arguments.router_core,
                log=Path(folder) / "router.log",
            )
            workload = Workload(model=MODEL, answer_tokens=(150, 400))
            users = Users(HOST, port, count=count, workload=workload, clock=time.perf_counter)
            try:
                until_ready(router, admin_port)
                users.start()
                yield Place(router, Viewer(admin_port), users)
            finally:
                await users.stop()
                router.stop()
        finally:
            engines.stop()


def addresses(engines: Session, count: int) -> list[str]:
    """Where the engines listen, as they say themselves."""
    assert engines.process.stdout is not None
    found: list[str] = []
    while len(found) < count:
        line = engines.process.stdout.readline().decode()
        if not line:
            raise SystemExit(f"the engines ended: {engines.last_words()}")
        found += [word for word in line.split()[:1] if word.startswith("http://")]
    return found


def until_ready(router: Session, admin_port: int) -> None:
    """Wait until some replica takes requests."""
    deadline = time.monotonic() + STARTS
    while True:
        with suppress(URLError), urlopen(f"http://{HOST}:{admin_port}/ready"):
            return
        if time.monotonic() > deadline or router.process.poll() is not None:
            raise SystemExit(f"the router does not become ready: {router.last_words()}")
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main())
