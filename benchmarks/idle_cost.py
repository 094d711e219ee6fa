"""What does a router cost that nobody asks anything, and how long until a new one answers?

    python -m benchmarks.idle_cost --replicas 8 --seconds 20 --repetitions 5
    python -m benchmarks.idle_cost --replicas 64 --before /path/to/another/venv/bin/python
    python -m benchmarks.idle_cost --start-up --repetitions 9

Idle: CPU of the router with default probes and scrapes, in front of replicas with a recorded metrics page.
Start-up: from the start of the process to the first answer that it has relayed. With `--before` another
version is measured in the same windows, or in turn. The exit status is 1 above a budget.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cheap_engine import MODEL
from benchmarks.entrants import Entrant
from benchmarks.processes import Session
from benchmarks.proxies import Place, Tools, free_port, launch

BUDGETS = {8: 1.0, 64: 6.0}
"""Percent of a core that an idle router may take, by replicas."""

START_UP_BUDGET = 1.0
"""Seconds to the first relayed answer."""

DEADLINE = 30.0
POLL = 0.002
SETTLE = 3.0
"""Seconds after the start until the first window: what start-up leaves to do is done by then."""

_BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}).encode()
_POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
) + _BODY


def main() -> int:
    """Measure, print the table, write the JSON, and return 1 if a budget is exceeded."""
    arguments = parse()
    os.sched_setaffinity(0, {arguments.tool_core})
    with tempfile.TemporaryDirectory() as folder, engines(arguments, Path(folder)) as ports:
        stage = Stage(arguments, Path(folder), ports)
        found = start_up(stage) if arguments.start_up else idle(stage)
    unit = "ms" if arguments.start_up else "% of a core"
    for name, values in found.items():
        middle = statistics.median(values)
        print(f"{name:<14} {middle:8.2f} {unit}  ({min(values):.2f} to {max(values):.2f}, n={len(values)})")
    if "before" in found:
        pairs = [now / was for now, was in zip(found["replicarouter"], found["before"], strict=True)]
        print(f"{'ratio':<14} {statistics.median(pairs):8.3f}  ({min(pairs):.3f} to {max(pairs):.3f})")
    if arguments.json is not None:
        shape = {"replicas": arguments.replicas, "seconds": arguments.seconds, "unit": unit}
        arguments.json.write_text(json.dumps({**shape, "found": found}, indent=1))
    return verdict(arguments, statistics.median(found["replicarouter"]))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--replicas", type=int, default=8, metavar="N")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each window of idling")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--start-up", action="store_true", help="measure start-up instead")
    parser.add_argument("--python", default=sys.executable, help="runs the router")
    parser.add_argument("--before", default="", metavar="PYTHON", help="runs another version of it")
    parser.add_argument("--replicarouter-args", default="", help="more flags for serve")
    parser.add_argument("--router-core", type=int, default=0)
    parser.add_argument("--tool-core", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def verdict(arguments: argparse.Namespace, middle: float) -> int:
    """Whether the budget holds; there is none for other numbers of replicas."""
    budget = START_UP_BUDGET * 1000 if arguments.start_up else BUDGETS.get(arguments.replicas)
    if budget is None or middle <= budget:
        return 0
    print(f"More than the {budget:g} that it may take.")
    return 1


@contextmanager
def engines(arguments: argparse.Namespace, folder: Path) -> Iterator[Sequence[int]]:
    """Replicas that cost little; yields their ports."""
    command = [sys.executable, "-m", "benchmarks.cheap_engine", "--count", str(arguments.replicas)]
    log = folder / "engines.log"
    session = Session(command, core=arguments.tool_core, log=log, stdout=subprocess.PIPE)
    try:
        assert session.process.stdout is not None
        line = session.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the engines ended early: {session.last_words()}")
        yield json.loads(line)["ports"]
    finally:
        session.stop()


class Stage:
    """Where the routers run: their names in turn, and how each is started."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, ports: Sequence[int]) -> None:
        self.arguments = arguments
        self.names = ["replicarouter", *(["before"] if arguments.before else [])]
        self._folder = folder
        self._ports = ports
        self._tools = Tools(
            python=arguments.python,
            before=arguments.before,
            replicarouter_args=arguments.replicarouter_args,
        )

    def start(self, name: str) -> tuple[Session, int]:
        """Start a router; returns it with the port that it will open."""
        place = Place(free_port(), self._ports, self._folder)
        command = launch(Entrant(name), self._tools, place).command
        log = self._folder / f"{name}-{place.port}.log"
        return Session(command, core=self.arguments.router_core, log=log), place.port


def idle(stage: Stage) -> Mapping[str, list[float]]:
    """Percent of a core of each router, all in the same windows."""
    routers: dict[str, Session] = {}
    try:
        for name in stage.names:
            session, port = stage.start(name)
            routers[name] = session
            await_answer(session, port)
        time.sleep(SETTLE)
        found: dict[str, list[float]] = {name: [] for name in routers}
        for _ in range(stage.arguments.repetitions):
            began = time.monotonic()
            before = {name: cpu_seconds(session) for name, session in routers.items()}
            time.sleep(stage.arguments.seconds)
            for name, session in routers.items():
                used = cpu_seconds(session) - before[name]
                found[name].append(100 * used / (time.monotonic() - began))
        return found
    finally:
        for session in routers.values():
            session.stop()


def start_up(stage: Stage) -> Mapping[str, list[float]]:
    """Milliseconds from the start of the process to the first relayed answer, the routers in turn."""
    found: dict[str, list[float]] = {name: [] for name in stage.names}
    for repetition in range(stage.arguments.repetitions + 1):
        for name in stage.names:
            began = time.monotonic()
            session, port = stage.start(name)
            try:
                await_answer(session, port)
                took = time.monotonic() - began
            finally:
                session.stop()
            if repetition:
                # The first one also compiled what it imports, and filled the page cache.
                found[name].append(1000 * took)
    return found


def await_answer(session: Session, port: int) -> None:
    """Wait until a completion comes through the router."""
    end = time.monotonic() + DEADLINE
    while not _answered(port):
        if time.monotonic() > end or session.process.poll() is not None:
            raise RuntimeError(f"no answer through the router: {session.last_words()}")
        time.sleep(POLL)


def cpu_seconds(session: Session) -> float:
    """What the processes of a session have used, by their own clocks: clock_getcpuclockid(3)."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in session.pids())


def _answered(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
            connection.sendall(_POST)
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
