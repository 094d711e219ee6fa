"""Child processes of this same program: started, watched, and always ended."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from replicarouter.demo.options import DemoFailed

Found = TypeVar("Found")

START_DEADLINE = 30.0
"""Seconds a child may take until it serves."""

STOP_DEADLINE = 3.0
"""Seconds a child may take to end after SIGTERM, before it is killed."""

POLL = 0.02
LAST_LINES = 5
"""How many of a child's last lines go into the message about its end."""

ENVIRONMENT_PREFIX = "REPLICAROUTER_"

PREFIX = "replicarouter: "
"""How this program begins its messages."""


class _Writings:
    """A file without a name that a process writes and we read."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the child lives

    def text(self) -> str:
        descriptor = self.file.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")


class Child:
    """`replicarouter ARGUMENTS` as a process. What it writes is kept in unnamed files."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._output, self._errors = _Writings(), _Writings()
        # The child stays in this process group, so that whatever ends the group ends it too. But
        # Ctrl-C reaches the whole group, and the child must outlive the last look at it: it inherits
        # the blocked signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this program itself
                [sys.executable, "-m", "replicarouter", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output.file,
                stderr=self._errors.file,
                env=_environment(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def check(self) -> None:
        """Raise DemoFailed with the child's own words if it has ended."""
        status = self._process.poll()
        if status is not None:
            lines = [line.removeprefix(PREFIX) for line in self._errors.text().strip().splitlines()]
            words = "\n".join(lines[-LAST_LINES:]) or "it said nothing"
            raise DemoFailed(f"the {self.name} ended ({_ending(status)}): {words}")

    def output(self) -> str:
        """What it has written to standard output so far."""
        return self._output.text()

    async def until(
        self, ask: Callable[[], Awaitable[Found | None]], *, deadline: float = START_DEADLINE
    ) -> Found:
        """Wait for an answer that is not None; DemoFailed when the child ends or takes too long."""
        end = time.monotonic() + deadline
        while (found := await ask()) is None:
            self.check()
            if time.monotonic() > end:
                raise DemoFailed(f"the {self.name} did not serve within {deadline:g} s")
            await asyncio.sleep(POLL)
        return found

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL if that does not help in time."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.file.close()
        self._errors.file.close()


def _environment() -> dict[str, str]:
    """Ours without the router's settings: a demonstration depends on its own flags alone."""
    return {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}


def _ending(status: int) -> str:
    if status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}"
