"""Processes pinned to cores, and what they have used so far, from /proc."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
REPOSITORY = Path(__file__).parent.parent
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_TIMEOUT = 5.0  # seconds until a process that ignores SIGTERM is killed


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, split into a program's own and the kernel's on its behalf."""

    user: float
    system: float

    @property
    def total(self) -> float:
        """Return both together."""
        return self.user + self.system

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(self.user - earlier.user, self.system - earlier.system)


class Session:
    """A command in a session of its own, so that its children can be found and stopped with it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        core: int | str,
        log: Path,
        stdout: int | None = None,
        stdin: int = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; `core` is a number or a list as of `taskset -c`, and `environment` comes on top."""
        self.log = log
        with log.open("wb") as log_file:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                stdin=stdin,
                env={**os.environ, **(environment or {})},
                stdout=log_file if stdout is None else stdout,
                stderr=log_file,
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def pids(self) -> list[int]:
        """Return the living processes of the session."""
        leader = str(self.process.pid)
        return [pid for pid, fields in _processes() if fields[3] == leader and fields[0] != "Z"]

    def cpu(self) -> Cpu:
        """Return what all processes and threads have used; those that have ended are not in it."""
        used = [process_cpu(pid) for pid in self.pids()]
        return Cpu(sum(cpu.user for cpu in used), sum(cpu.system for cpu in used))

    def time_on_cores(self) -> float:
        """Return the same in all, seconds to the nanosecond: the other comes in steps of 10 ms."""
        return sum(_time_on_cores(pid) for pid in self.pids())

    def rss(self) -> int:
        """Return the resident bytes of all processes together."""
        return sum(_resident_bytes(pid) for pid in self.pids())

    def stop(self) -> None:
        """End all processes of the session and wait for that."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids():
                _signal(pid, sign)
            deadline = time.monotonic() + STOP_TIMEOUT
            while self.pids() and time.monotonic() < deadline:
                self.process.poll()
                time.sleep(0.02)
        self.process.wait(STOP_TIMEOUT)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def last_words(self) -> str:
        """Return the end of the log, for an error message."""
        return self.log.read_text(errors="replace")[-800:]


def machine_cpu() -> float:
    """Return the CPU seconds that all processes of the machine have used, stolen time included."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def own_cpu() -> Cpu:
    """Return what this process has used."""
    times = os.times()
    return Cpu(times.user, times.system)


def _processes() -> list[tuple[int, list[str]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((int(entry.name), _stat(int(entry.name))))
            except OSError:
                continue  # it has ended since
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent, group, session, …"""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def process_cpu(pid: int) -> Cpu:
    """Return what one process has used; nothing when it has ended."""
    try:
        fields = _stat(pid)
    except OSError:
        return Cpu(0.0, 0.0)
    return Cpu(int(fields[11]) / TICKS_PER_SECOND, int(fields[12]) / TICKS_PER_SECOND)


def _time_on_cores(pid: int) -> float:
    spent = 0
    with suppress(OSError):  # it has ended since
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
