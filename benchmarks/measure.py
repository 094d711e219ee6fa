"""One measurement: replicas, a proxy and clients are started, watched for a window, and stopped."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cheap_client import request_bytes
from benchmarks.cores import Cores, joined
from benchmarks.entrants import DIRECT, Entrant
from benchmarks.processes import Cpu, Session, machine_cpu, own_cpu
from benchmarks.proxies import Launch, Place, Tools, free_port, launch
from benchmarks.scenarios import Scenario
from benchmarks.times import merged, percentiles

REPLICAS = 8
READY_TIMEOUT = 90.0  # seconds
KEPT_UP = 0.97  # of the offered rate; below it a paced measurement says nothing about cost
SETTLE = 1.5  # seconds between the first answer and the clients: probes of all replicas are through
TIMES = ("latency", "ttft", "itl", "delay")


class MeasurementError(Exception):
    """A process did not start, or ended too early; the message carries its last words."""


@dataclass(slots=True)
class Measurement:
    """What one proxy did in one scenario once, with so many users.

    CPU is seconds in the window, times milliseconds.
    """

    proxy: str
    scenario: str
    unit: str
    users: int = 0
    workers: int = 1
    repetition: int = 0
    attempts: int = 1
    offered: float = 0.0  # units a second that a proxy which keeps up passes on; 0: no such rate
    units: int = 0
    seconds: float = 0.0
    user: float = 0.0
    system: float = 0.0
    engine_cpu: float = 0.0
    client_cpu: float = 0.0
    foreign: float = 0.0  # cores taken by processes that are not ours
    rss_before: int = 0
    rss: int = 0
    reads: int = 0
    held: int = 0
    busiest_share: float = 0.0  # requests of the busiest replica over the mean
    cut_bodies: int = 0
    events_under_way: int = 0  # written by the replicas to streams that were open in the end
    errors: dict[str, int] = field(default_factory=dict)
    latency: dict[str, float] | None = None
    ttft: dict[str, float] | None = None
    itl: dict[str, float] | None = None
    delay: dict[str, float] | None = None
    failure: str = ""

    def microseconds(self, cpu: float) -> float:
        """Return CPU seconds as microseconds for each request or chunk."""
        return 1e6 * cpu / self.units if self.units else 0.0

    @property
    def cost(self) -> float:
        """Return the proxy's CPU microseconds for each request or chunk."""
        return self.microseconds(self.user + self.system)

    @property
    def behind(self) -> bool:
        """Tell whether less was passed on than offered: then events came in lumps, and cheaply."""
        return not self.failure and self.units < KEPT_UP * self.offered * self.seconds

    @property
    def growth(self) -> int:
        """Return the bytes by which the proxy's resident memory grew with the streams held."""
        return self.rss - self.rss_before

    def times(self, kind: str) -> dict[str, float] | None:
        """Return the percentiles of one of `TIMES`, milliseconds."""
        found: dict[str, float] | None = getattr(self, kind)
        return found


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements of a run share: commands, cores, and how many processes the tools are.

    `launches` keeps how each entrant was started the last time.
    """

    tools: Tools
    cores: Cores
    engines: int = 1
    clients: int = 1
    launches: dict[str, Launch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time at one moment of all that is watched."""

    proxy: Cpu
    engine: Cpu
    own: Cpu
    machine: float


class Stage:
    """The processes of one measurement, in the order in which they are started."""

    def __init__(self, entrant: Entrant, scenario: Scenario, bench: Bench, directory: Path) -> None:
        self.entrant = entrant
        self.scenario = scenario
        self.bench = bench
        self.directory = directory
        self.engines: list[Session] = []
        self.proxy: Session | None = None
        self.clients: list[Session] = []

    def start_engines(self, stack: ExitStack) -> list[int]:
        """Start the replicas and return their ports."""
        options = ["--count", str(REPLICAS), "--events", str(self.scenario.events)]
        options += ["--interval", str(self.scenario.interval)]
        options += ["--hold"] if self.scenario.silent else []
        self.engines = self._tools("cheap_engine", options, self.bench.engines, stack)
        parts = [_line(engine)["ports"] for engine in self.engines]
        return [int(parts[index % len(parts)][index // len(parts)]) for index in range(REPLICAS)]

    def start_proxy(self, replica_ports: Sequence[int], stack: ExitStack) -> int:
        """Start the proxy, wait until a request passes through it, and return its port."""
        place = Place(free_port(), replica_ports, self.directory)
        started = launch(self.entrant, self.bench.tools, place)
        self.bench.launches[self.entrant.label] = started
        self.proxy = Session(
            started.command,
            core=joined(self.bench.cores.proxy[: self.entrant.workers]),
            log=self.directory / "proxy.log",
            environment=started.environment,
        )
        stack.callback(self.proxy.stop)
        request = request_bytes("127.0.0.1", 256, stream=self.scenario.events > 0)
        deadline = time.monotonic() + READY_TIMEOUT
        while not _answers(place.port, request):
            if time.monotonic() > deadline or self.proxy.process.poll() is not None:
                raise MeasurementError(f"does not answer: {self.proxy.last_words()}")
            time.sleep(0.1)
        time.sleep(SETTLE)
        return place.port

    def start_clients(self, ports: Sequence[int], stack: ExitStack) -> None:
        """Start the clients, and let them begin all at once."""
        scenario = self.scenario
        options = ["--ports", joined(ports), "--users", joined(scenario.users)]
        options += ["--events", str(scenario.events), "--body-bytes", str(scenario.body_bytes)]
        options += ["--spread", str(scenario.spread), "--warm", str(scenario.warm)]
        options += ["--seconds", str(scenario.seconds)]
        options += ["--hold"] if scenario.hold else []
        options += ["--stalled"] if scenario.stalled else []
        self.clients = self._tools("cheap_client", options, self.bench.clients, stack)
        for client in self.clients:
            _line(client)
        begin = f"{time.monotonic() + 0.05}\n".encode()
        for client in self.clients:
            assert client.process.stdin is not None
            client.process.stdin.write(begin)
            client.process.stdin.flush()

    def ask_clients(self) -> list[dict[str, Any]]:
        """Return the next line of each client."""
        return [_line(client) for client in self.clients]

    def usage(self) -> Usage:
        """Read all CPU clocks."""
        engines = [engine.cpu() for engine in self.engines]
        return Usage(
            proxy=self.proxy.cpu() if self.proxy else Cpu(0.0, 0.0),
            engine=Cpu(sum(each.user for each in engines), sum(each.system for each in engines)),
            own=own_cpu(),
            machine=machine_cpu(),
        )

    def rss(self) -> int:
        """Return the proxy's resident bytes."""
        return self.proxy.rss() if self.proxy else 0

    def _tools(self, module: str, options: Sequence[str], count: int, stack: ExitStack) -> list[Session]:
        started = []
        for index in range(count):
            session = Session(
                [sys.executable, "-m", f"benchmarks.{module}", *options, "--share", f"{index}/{count}"],
                core=joined(self.bench.cores.tools),
                log=self.directory / f"{module}{index}.log",
                stdout=subprocess.PIPE,
                stdin=subprocess.PIPE,
            )
            stack.callback(session.stop)
            started.append(session)
        return started


def measure(entrant: Entrant, name: str, scenario: Scenario, bench: Bench) -> list[Measurement]:
    """Measure an entrant in a scenario once, a result a step; a failure is reported in the last one."""
    results: list[Measurement] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        stage = Stage(entrant, scenario, bench, directory)
        before = 0
        try:
            ports = stage.start_engines(stack)
            targets = ports if entrant.proxy == DIRECT else [stage.start_proxy(ports, stack)]
            before = stage.rss()
            stage.start_clients(targets, stack)
            for users in scenario.users if not scenario.hold else scenario.users[-1:]:
                result = _blank(entrant, name, scenario, users)
                results.append(result)
                result.rss_before = before
                (_watch_held if scenario.hold else _watch_window)(stage, result)
            _ask_replicas(ports, results[-1])
        except (MeasurementError, OSError) as error:
            if not results:
                results.append(_blank(entrant, name, scenario, scenario.users[0]))
            results[-1].failure = str(error)
    return results


def _blank(entrant: Entrant, name: str, scenario: Scenario, users: int) -> Measurement:
    return Measurement(
        entrant.label,
        name,
        "stream" if scenario.hold else scenario.unit,
        users=users,
        workers=entrant.workers,
        offered=0.0 if scenario.hold else scenario.offered(users),
    )


def _watch_window(stage: Stage, result: Measurement) -> None:
    stage.ask_clients()
    before = stage.usage()
    windows = stage.ask_clients()
    after = stage.usage()
    result.rss = stage.rss()
    reports = stage.ask_clients()
    result.seconds = sum(window["seconds"] for window in windows) / len(windows)
    kind = "events" if stage.scenario.events else "requests"
    result.units = sum(window[kind] for window in windows)
    result.reads = sum(window["reads"] for window in windows)
    proxy = after.proxy - before.proxy
    result.user, result.system = proxy.user, proxy.system
    result.engine_cpu = (after.engine - before.engine).total
    result.client_cpu = sum(window["cpu"] for window in windows)
    ours = proxy.total + result.engine_cpu + result.client_cpu + (after.own - before.own).total
    result.foreign = (after.machine - before.machine - ours) / result.seconds
    result.errors = _added(report["errors"] for report in reports)
    result.latency, result.ttft, result.itl, result.delay = (
        percentiles(merged(report[name] for report in reports)) for name in TIMES
    )


def _watch_held(stage: Stage, result: Measurement) -> None:
    reports = stage.ask_clients()
    time.sleep(stage.scenario.seconds / 3)
    result.held = sum(report["held"] for report in reports)
    result.errors = _added(report["errors"] for report in reports)
    result.rss = stage.rss()
    if result.held < result.users:
        raise MeasurementError(f"{result.held} of {result.users} streams opened: {result.errors}")


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _ask_replicas(ports: Sequence[int], result: Measurement) -> None:
    counts = [json.loads(_get(port, "/counts")) for port in ports]
    requests = [count["requests"] for count in counts]
    result.busiest_share = max(requests) * len(requests) / max(1, sum(requests))
    result.cut_bodies = sum(count["cut_bodies"] for count in counts)
    result.events_under_way = sum(count["events_under_way"] for count in counts)


def _line(session: Session) -> dict[str, Any]:
    """Read the next JSON line that a tool prints."""
    assert session.process.stdout is not None
    line = session.process.stdout.readline()
    if not line:
        raise MeasurementError(f"a tool ended early: {session.last_words()}")
    facts: dict[str, Any] = json.loads(line)
    return facts


def _answers(port: int, request: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(request)
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


def _get(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return connection.recv(65536).partition(b"\r\n\r\n")[2]
