"""The processes of a soak: one router as users start it, and simulated engines with a control port each."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
START_DEADLINE = 30.0  # seconds until a process must serve

Json = dict[str, Any]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


async def ask(port: int, method: str, path: str, said: object = None) -> tuple[int, bytes]:
    """One request on a connection of its own; OSError or TimeoutError when it gets no answer."""
    body = b"" if said is None else json.dumps(said).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(head.encode() + b"\r\n" + body)
            raw = await reader.read()
        finally:
            writer.close()
    status, _, content = raw.partition(b"\r\n\r\n")
    if not status.startswith(b"HTTP/1.1 "):
        raise ConnectionResetError(f"no answer from port {port}")
    return int(status.split()[1]), content


async def until(wanted: Any, what: str, deadline: float = START_DEADLINE) -> None:
    """Wait until the coroutine function `wanted` answers true; TimeoutError says what did not happen."""
    end = time.monotonic() + deadline
    while True:
        try:
            if await wanted():
                return
        except (OSError, TimeoutError):
            pass
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline:g} s: {what}")
        await asyncio.sleep(0.1)


class Process:
    """`replicarouter ARGUMENTS`; what it writes goes to a file."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "replicarouter", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def signal(self, number: signal.Signals) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    async def ended(self, deadline: float) -> bool:
        """Wait for its end."""
        end = time.monotonic() + deadline
        while self.popen.poll() is None:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.02)
        return True

    async def stop(self, deadline: float = 5.0) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit status."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if not await self.ended(deadline):
            self.signal(signal.SIGKILL)
        return self.popen.wait()


class Replica:
    """One simulated engine, which may be killed and started again at the same ports."""

    def __init__(self, folder: Path, port: int, control: int, flags: Sequence[str]) -> None:
        self.port = port
        self.control = control
        self.name = f"{HOST}:{port}"
        self.url = f"http://{self.name}"
        self.journal = folder / f"journal-{port}"
        self._log = folder / f"engine-{port}.log"
        self._flags = flags
        self._process: Process | None = None

    def start(self) -> None:
        flags = [
            "--port",
            str(self.port),
            "--control-port",
            str(self.control),
            "--journal",
            str(self.journal),
        ]
        self._process = Process(["engine", *flags, *self._flags], self._log)

    async def serving(self) -> bool:
        return (await ask(self.port, "GET", "/health"))[0] == 200

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.signal(number)

    async def stop(self, deadline: float = 5.0) -> None:
        if self._process is not None:
            await self._process.stop(deadline)

    async def fault(self, said: Json | None) -> None:
        """Script a fault, or end all of them; an engine that does not answer is left alone."""
        method = "DELETE" if said is None else "POST"
        try:
            await ask(self.control, method, "/sim/fault", said)
        except (OSError, TimeoutError):
            return


class Fleet:
    """A router in front of replicas, all processes of this machine, with their files in `folder`."""

    def __init__(
        self, folder: Path, *, replicas: int, spare: int, flags: Sequence[str], settings: Json
    ) -> None:
        self.folder = folder
        self.port, self.admin_port, *ports = free_ports(2 + 2 * (replicas + spare))
        pairs = zip(ports[::2], ports[1::2], strict=True)
        self.replicas = [Replica(folder, port, control, flags) for port, control in pairs]
        self.members = self.replicas[:replicas]
        self._settings = settings
        self._router: Process | None = None
        self.workers: list[int] = []
        """Process ids of the workers as they were when this was looked up last."""

    async def start(self) -> None:
        """Start everything and wait until each member is ready."""
        for replica in self.replicas:
            replica.start()
        document = {
            **self._settings,
            "port": self.port,
            "admin": {"port": self.admin_port},
            "replicas": [{"url": replica.url} for replica in self.members],
        }
        config = self.folder / "router.yaml"
        config.write_text(json.dumps(document))
        self._router = Process(["serve", "--config", str(config)], self.folder / "router.log")

        async def ready() -> bool:
            if self._router is not None and self._router.popen.poll() is not None:
                raise SystemExit(self._router.log.read_text())
            states = [row["state"] for row in (await self.ledger())["replicas"]]
            return states.count("ready") == len(self.members)

        await until(ready, "all replicas are ready")

    @property
    def router(self) -> Process:
        assert self._router is not None
        return self._router

    async def ledger(self) -> Json:
        status, content = await ask(self.admin_port, "GET", "/admin/ledger")
        if status != 200:
            raise ConnectionResetError(f"the ledger answered {status}")
        return dict(json.loads(content))

    async def admin(self, method: str, path: str, said: object = None) -> int:
        """The status of an operator's request."""
        return (await ask(self.admin_port, method, f"/admin/replicas{path}", said))[0]

    async def outcomes(self) -> dict[str, int]:
        """`requests_total` by outcome."""
        _, page = await ask(self.admin_port, "GET", "/metrics")
        found: dict[str, int] = {}
        for line in page.decode().splitlines():
            if line.startswith("replicarouter_requests_total{"):
                labels, _, value = line.rpartition(" ")
                outcome = labels.partition('outcome="')[2].partition('"')[0]
                found[outcome] = found.get(outcome, 0) + int(float(value))
        return found

    def processes(self) -> list[int]:
        """Those of the router: with workers these, and the one that starts them, too."""
        nurseries = _children(self.router.pid)
        self.workers = [worker for nursery in nurseries for worker in _children(nursery)]
        return [self.router.pid, *nurseries, *self.workers]

    def descriptors(self) -> int:
        """Open file descriptors of the router."""
        return sum(_descriptors(pid) for pid in self.processes())

    def resident(self) -> int:
        """Resident bytes of the router; what its processes share counts for each of them."""
        return sum(_resident(pid) for pid in self.processes())

    async def settled(self) -> bool:
        """Nothing is in flight in the router."""
        return not any(unsettled(await self.ledger()).values())

    async def stop(self) -> None:
        """End everything."""
        await asyncio.gather(*(replica.stop(2) for replica in self.replicas))
        if self._router is not None:
            await self._router.stop()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _descriptors(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def unsettled(ledger: Mapping[str, Any]) -> dict[str, int]:
    """What a ledger counts that must be zero at rest."""
    stages = ("receiving", "queued", "connecting", "sent", "streaming")
    rows = ledger["replicas"]
    return {
        **{stage: int(ledger[stage]) for stage in stages},
        "outstanding": sum(int(row["outstanding"]) for row in rows),
        "accepted": int(ledger["accepted"]),
        "connector_busy": int(ledger["connector"]["busy"]),
        "connector_waiting": int(ledger["connector"]["waiting"]),
    }
