"""`replicarouter serve` as a process of its own, asked over its two ports."""

import subprocess
import sys
from pathlib import Path
from typing import Protocol

from tests.fakes.replica import FakeReplica
from tests.fakes.running import Doors, free_port
from tests.fakes.wire import eventually

STARTS = 20.0
"""Seconds for an interpreter to start on a busy machine."""


class Served(Doors):
    """`replicarouter serve` as a process of its own."""

    def __init__(
        self,
        folder: Path,
        replicas: tuple[FakeReplica, ...],
        flags: tuple[str, ...],
        descriptors: int | None = None,
    ) -> None:
        super().__init__(free_port(), free_port())
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        fleet = [part for replica in replicas for part in ("--replica", replica.settings["url"])]
        limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"'] if descriptors else []
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*limited, sys.executable, "-m", "replicarouter", "serve", *ports, *fleet, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    async def up(self) -> None:
        """Wait until it answers on both ports."""

        async def answers() -> bool:
            assert self.process.poll() is None, self.output
            try:
                # It says so when all is open: one of several workers may answer a moment earlier.
                return "clients" in self.output and (
                    (await self.admin("/health")).status == (await self.get("/health")).status == 200
                )
            except ConnectionRefusedError:
                return False

        await eventually(answers, "the router answers", deadline=STARTS)

    async def exit_status(self) -> int:
        """Wait for it to end."""
        await eventually(lambda: self.process.poll() is not None, "the router ends", deadline=STARTS)
        return self.process.wait()


class Serve(Protocol):
    """Start the replicas and the real command in front of them; `up`: wait until it answers; `descriptors`:
    its limit of file descriptors."""

    async def __call__(
        self,
        *replicas: FakeReplica,
        flags: tuple[str, ...] = (),
        up: bool = True,
        descriptors: int | None = None,
    ) -> Served: ...
