"""One measurement: replicas, a proxy and clients are started, watched for a window, and stopped."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cheap_client import request_bytes
from benchmarks.processes import Cpu, Session, machine_cpu, own_cpu
from benchmarks.proxies import DIRECT, PROXIES, Place, Tools, free_port
from benchmarks.scenarios import SCENARIOS, Scenario

REPLICAS = 8
READY_TIMEOUT = 60.0  # seconds
KEPT_UP = 0.97  # of the offered rate; below it a paced measurement says nothing about cost
SETTLE = 1.5  # seconds between the first answer and the clients: probes of all replicas are through


class MeasurementError(Exception):
    """A process did not start, or ended too early; the message carries its last words."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the processes are pinned: the proxy has a core of its own."""

    proxy: int
    tools: int


@dataclass(slots=True)
class Measurement:
    """What one proxy did in one scenario once. CPU is seconds in the window, times milliseconds."""

    proxy: str
    scenario: str
    repetition: int
    unit: str
    attempts: int = 1
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
        offered = SCENARIOS[self.scenario].offered
        return not self.failure and self.units < KEPT_UP * offered * self.seconds

    @property
    def bytes_per_stream(self) -> float:
        """Return the growth of the proxy's resident memory for each open stream."""
        return (self.rss - self.rss_before) / self.held if self.held else 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time at one moment of all that is watched."""

    proxy: Cpu
    engine: Cpu
    own: Cpu
    machine: float


class Stage:
    """The processes of one measurement, in the order in which they are started."""

    def __init__(self, scenario: Scenario, directory: Path, cores: Cores) -> None:
        self.scenario = scenario
        self.directory = directory
        self.cores = cores
        self.engine: Session
        self.proxy: Session | None = None
        self.client: Session

    def start_engine(self, stack: ExitStack) -> list[int]:
        """Start the replicas and return their ports."""
        options = ["--count", str(REPLICAS), "--events", str(self.scenario.events)]
        options += ["--interval", str(self.scenario.interval)]
        options += ["--hold"] if self.scenario.hold else []
        self.engine = self._tool("benchmarks.cheap_engine", options, stack)
        return [int(port) for port in _line(self.engine)["ports"]]

    def start_proxy(self, command: Sequence[str], port: int, stack: ExitStack) -> None:
        """Start the proxy and wait until a request passes through it."""
        log = self.directory / "proxy.log"
        self.proxy = Session(command, core=self.cores.proxy, log=log)
        stack.callback(self.proxy.stop)
        request = request_bytes("127.0.0.1", 256, stream=self.scenario.events > 0)
        deadline = time.monotonic() + READY_TIMEOUT
        while not _answers(port, request):
            if time.monotonic() > deadline or self.proxy.process.poll() is not None:
                raise MeasurementError(f"does not answer: {self.proxy.last_words()}")
            time.sleep(0.1)
        time.sleep(SETTLE)

    def start_client(self, ports: Sequence[int], stack: ExitStack) -> None:
        """Start the clients."""
        scenario = self.scenario
        options = ["--ports", ",".join(map(str, ports))]
        options += ["--connections", str(scenario.connections), "--events", str(scenario.events)]
        options += ["--body-bytes", str(scenario.body_bytes), "--spread", str(scenario.spread)]
        options += ["--warm", str(scenario.warm), "--seconds", str(scenario.seconds)]
        options += ["--hold"] if scenario.hold else []
        self.client = self._tool("benchmarks.cheap_client", options, stack)

    def usage(self) -> Usage:
        """Read all CPU clocks."""
        return Usage(
            proxy=self.proxy.cpu() if self.proxy else Cpu(0.0, 0.0),
            engine=self.engine.cpu(),
            own=own_cpu(),
            machine=machine_cpu(),
        )

    def _tool(self, module: str, options: Sequence[str], stack: ExitStack) -> Session:
        log = self.directory / f"{module}.log"
        command = [sys.executable, "-m", module, *options]
        session = Session(command, core=self.cores.tools, log=log, stdout=subprocess.PIPE)
        stack.callback(session.stop)
        return session


def measure(proxy: str, scenario: str, tools: Tools, cores: Cores) -> Measurement:
    """Measure one proxy in one scenario once; a failure is reported in the measurement."""
    result = Measurement(proxy, scenario, 0, SCENARIOS[scenario].unit)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-")))
        stage = Stage(SCENARIOS[scenario], directory, cores)
        try:
            engine_ports = stage.start_engine(stack)
            client_ports = engine_ports
            if proxy != DIRECT:
                place = Place(free_port(), engine_ports, directory)
                stage.start_proxy(PROXIES[proxy](tools, place), place.port, stack)
                client_ports = [place.port]
            result.rss_before = stage.proxy.rss() if stage.proxy else 0
            stage.start_client(client_ports, stack)
            if stage.scenario.hold:
                _watch_held(stage, result)
            else:
                _watch_window(stage, result)
            _ask_replicas(engine_ports, result)
        except (MeasurementError, OSError) as error:
            result.failure = str(error)
    return result


def _watch_window(stage: Stage, result: Measurement) -> None:
    _line(stage.client)
    before = stage.usage()
    window = _line(stage.client)
    after = stage.usage()
    result.rss = stage.proxy.rss() if stage.proxy else 0
    report = _line(stage.client)
    result.seconds = window["seconds"]
    result.units = window["events"] if stage.scenario.events else window["requests"]
    proxy = after.proxy - before.proxy
    result.user, result.system = proxy.user, proxy.system
    result.engine_cpu = (after.engine - before.engine).total
    result.client_cpu = window["cpu"]
    ours = proxy.total + result.engine_cpu + result.client_cpu + (after.own - before.own).total
    result.foreign = (after.machine - before.machine - ours) / result.seconds
    result.reads, result.errors = report["reads"], report["errors"]
    result.latency, result.ttft = report["latency"], report["ttft"]
    result.itl, result.delay = report["itl"], report["delay"]


def _watch_held(stage: Stage, result: Measurement) -> None:
    report = _line(stage.client)
    time.sleep(stage.scenario.seconds / 3)
    result.held, result.errors = report["held"], report["errors"]
    result.rss = stage.proxy.rss() if stage.proxy else 0


def _ask_replicas(ports: Sequence[int], result: Measurement) -> None:
    counts = [json.loads(_get(port, "/counts")) for port in ports]
    requests = [count["requests"] for count in counts]
    result.busiest_share = max(requests) * len(requests) / max(1, sum(requests))
    result.cut_bodies = sum(count["cut_bodies"] for count in counts)


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
