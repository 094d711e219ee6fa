"""The processes of these tests: real vLLM servers, and the router started as a user starts it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).parent
HOST = "127.0.0.1"
MODEL = "tiny"
SLOTS = 2
"""Requests that one engine runs at a time; more of them wait in it."""

CONTEXT = 4096
"""Tokens that fit the engine's context."""

BOOT = 150.0
"""Seconds for a server's first start on a busy machine; vLLM inspects the model once and remembers it."""

ENGINE_FLAGS = (
    f"--model={HERE / 'tiny-model'}",
    f"--served-model-name={MODEL}",
    f"--max-model-len={CONTEXT}",
    f"--max-num-seqs={SLOTS}",
    "--block-size=32",
    "--enable-auto-tool-choice",
    "--tool-call-parser=hermes",
    "--sse-keep-alive-interval=1",
)


def wait_until(condition: Callable[[], object], what: str, *, deadline: float) -> float:
    """Ask until `condition` holds; the seconds it took. Fails naming `what`."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + deadline, f"not within {deadline} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - start


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> bytes:
    """The body of a GET that must succeed."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=5) as answer:
        return bytes(answer.read())


def answers(port: int, path: str) -> bool:
    """Whether a GET succeeds now."""
    try:
        get(port, path)
    except OSError:
        return False
    return True


def metric(port: int, name: str, **labels: str) -> float | None:
    """The sum of one metric's samples that carry these labels, None when there are none."""
    values = [
        sample.value
        for family in text_string_to_metric_families(get(port, "/metrics").decode())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return sum(values) if values else None


def total(port: int, name: str, **labels: str) -> float:
    """As `metric`, where the samples must be there."""
    value = metric(port, name, **labels)
    assert value is not None, f"port {port} has no {name} with {labels}"
    return value


def running(port: int) -> float:
    """Requests that an engine works on, by its own count."""
    return total(port, "vllm:num_requests_running")


def waiting(port: int) -> float:
    """Requests in an engine's queue, by its own count."""
    return total(port, "vllm:num_requests_waiting")


class EngineFleet:
    """vLLM servers forked from one process (`fleet.py`); `ports` tells where they serve."""

    def __init__(self, python: Path, logs: Path) -> None:
        self.ports: list[int] = []
        self._logs = logs
        self._processes: dict[int, int] = {}
        command: list[str | Path] = [python, HERE / "fleet.py", "--logs", logs, *ENGINE_FLAGS]
        with (logs / "fleet.log").open("wb") as log:
            self._parent = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def start(self, ports: Sequence[int], *words: str) -> None:
        """Start a server on each port, also where one was killed, and wait until all of them serve.

        Words are flags, or variables as `NAME=VALUE`.
        """
        assert not self._processes.keys() & ports, "one serves there already"
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.writelines(" ".join([str(port), *words]) + "\n" for port in ports)
        self._parent.stdin.flush()
        for port in ports:
            process = self._parent.stdout.readline()
            assert process, f"the fleet's parent died: {self._end_of_log('fleet')}"
            self._processes[port] = int(process)
            if port not in self.ports:
                self.ports.append(port)
        for port in ports:
            self._wait_for(port)

    def kill(self, port: int) -> None:
        """End a server with all its processes; returns when the kernel has closed its sockets."""
        os.killpg(self._processes.pop(port), signal.SIGKILL)
        wait_until(lambda: not answers(port, "/health"), "the port is closed", deadline=10)

    def signal_server(self, port: int, number: signal.Signals) -> None:
        """Send a signal to the process that serves HTTP."""
        os.kill(self._processes[port], number)

    def signal_core(self, port: int, number: signal.Signals) -> None:
        """Send a signal to the process that runs the model."""
        process = self._processes[port]
        (core,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(int(core), number)

    def signal_all(self, port: int, number: signal.Signals) -> None:
        """Send a signal to both."""
        os.killpg(self._processes[port], number)

    def lives(self, port: int) -> bool:
        """Whether the server was started and not killed since."""
        return port in self._processes

    def is_idle(self) -> bool:
        """Whether no engine has anything to do."""
        return not any(running(port) or waiting(port) for port in self.ports)

    def close(self) -> None:
        """End all servers."""
        self._parent.communicate(timeout=30)

    def _wait_for(self, port: int) -> None:
        try:
            wait_until(lambda: answers(port, "/health"), "vLLM boots", deadline=BOOT)
        except AssertionError as slow:
            slow.add_note(self._end_of_log(f"vllm-{port}"))
            raise

    def _end_of_log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(errors="replace")[-3000:]


class RouterProcess:
    """`replicarouter serve` in front of replicas on these ports; `settings` by their dotted names."""

    def __init__(
        self, replicas: Sequence[int], log: Path, settings: Mapping[str, object] | None = None
    ) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self._log = log
        flags = [f"--replica=http://{HOST}:{port}" for port in replicas]
        ports = [f"--port={self.port}", f"--admin-port={self.admin_port}"]
        command = [sys.executable, "-m", "replicarouter", "serve", *flags, *ports]
        environment = {name: value for name, value in os.environ.items() if "REPLICAROUTER" not in name}
        for name, value in (settings or {}).items():
            environment["REPLICAROUTER_" + name.replace(".", "__").upper()] = str(value)
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            wait_until(self._is_up, "the router is ready", deadline=20)
        except AssertionError as slow:
            slow.add_note(log.read_text())
            self._process.kill()
            self._process.wait()
            raise

    def _is_up(self) -> bool:
        return answers(self.port, "/ready") and answers(self.admin_port, "/health")

    def ledger(self) -> dict[str, Any]:
        """The operator's view of where every request is."""
        document: dict[str, Any] = json.loads(get(self.admin_port, "/admin/ledger"))
        return document

    def outcomes(self) -> dict[str, int]:
        """How many requests have ended how."""
        return {outcome: count for outcome, count in self.ledger()["finished"].items() if count}

    def state(self, port: int) -> str:
        """What the router believes of the replica on this port."""
        rows = json.loads(get(self.admin_port, "/admin/replicas"))["replicas"]
        return next(str(row["state"]) for row in rows if row["name"] == f"{HOST}:{port}")

    def sees_idle_fleet(self) -> bool:
        """Whether nothing is in flight here, and the last reading of every replica says the same."""
        ledger = self.ledger()
        readings = [count for one in ledger["replicas"] for count in (one["running"], one["waiting"])]
        return ledger["accepted"] == 0 and all(count == 0 for count in readings)

    def close(self) -> None:
        """Stop as an operator does; an idle router leaves at once, with status 0 and no error logged."""
        self._process.terminate()
        try:
            status = self._process.wait(timeout=10)
        finally:
            self._process.kill()
        log = self._log.read_text()
        assert status == 0, log[-3000:]
        assert '"level": "error"' not in log
