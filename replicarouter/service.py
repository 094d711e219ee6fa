"""What systemd is told of this process, by the protocol of sd_notify(3) and sd_watchdog_enabled(3).

Without `NOTIFY_SOCKET` in the environment nothing is sent."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Self

log = logging.getLogger(__name__)

STATUS_PERIOD = 5.0
"""Most seconds between two looks whether the status line has changed."""

DRAIN_PERIOD = 1.0
"""The same while requests are finished."""

LEAST_PERIOD = 0.1
"""Fewest seconds between two signs of life, however soon the service manager wants one."""

EXTENSION = 15
"""Seconds that each word of a drain asks for: so long may the event loop be busy before it is stopped."""

MOST_DIGITS = 20
"""Those of the largest time that systemd knows, in microseconds."""

PATIENCE = 1.0
"""Seconds to wait for a service manager that has no room for one more message."""


class ServiceManager:
    """One direction only: this process talks, and goes on whether or not it is heard.

    `address` is a path or, behind an `@`, a name in the abstract namespace; `watchdog` the seconds within
    which the service manager wants a sign of life, 0 for none.
    """

    def __init__(self, address: str | None, watchdog: float = 0.0) -> None:
        self._address = address
        self._watchdog = watchdog
        self._status = ""
        self._stopping = False
        self._failing = False

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Self:
        """The one that started the process `pid`, by what it left in the environment."""
        return cls(environ.get("NOTIFY_SOCKET") or None, _watchdog(environ, pid))

    @property
    def period(self) -> float:
        """Seconds between two signs of life: half of the time in which one is wanted, as
        sd_watchdog_enabled(3) advises, or less, but never so few that nothing else is done."""
        return max(LEAST_PERIOD, min(STATUS_PERIOD, self._watchdog / 2)) if self._watchdog else STATUS_PERIOD

    def ready(self, status: str) -> None:
        """Requests are served: after the start, or again after a reload. Not said of one that stops."""
        if self._stopping:
            return
        self._status = status
        self._tell("READY=1", f"MAINPID={os.getpid()}", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are being read; `ready` must follow."""
        if self._stopping:
            return
        # In one message with the time on CLOCK_MONOTONIC, which Type=notify-reload compares with its own.
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """What runs is finished, and then this process ends."""
        self._stopping = True
        self._status = status
        self._tell("STOPPING=1", f"STATUS={status}", *self._extension())

    async def keep_alive(self, status: Callable[[], str]) -> None:
        """Tell the status when it changes, and that the event loop runs, for ever."""
        if self._address is None:
            return
        while True:
            self._repeat(status(), *(("WATCHDOG=1",) if self._watchdog else ()))
            await asyncio.sleep(self.period)

    async def keep_draining(self, status: Callable[[], str]) -> None:
        """Ask for more time to stop, for ever: while the event loop runs, the drain ends by its own limit."""
        if self._address is None:
            return
        while True:
            self._repeat(status(), *self._extension())
            await asyncio.sleep(DRAIN_PERIOD)

    def _extension(self) -> tuple[str, ...]:
        return (f"EXTEND_TIMEOUT_USEC={EXTENSION * 1_000_000}",)

    def _repeat(self, status: str, *assignments: str) -> None:
        """What is said again soon need not wait for room."""
        if status != self._status:
            self._status = status
            assignments += (f"STATUS={status}",)
        if assignments:
            self._tell(*assignments, patience=0.0)

    def _tell(self, *assignments: str, patience: float = PATIENCE) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.settimeout(patience)
                # Connected, so that waiting for room is waiting and not asking again and again.
                end.connect(_socket_name(self._address))
                end.send("\n".join(assignments).encode())
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("service manager not told", extra={"why": str(error)})
            self._failing = True


def _socket_name(address: str) -> str:
    return f"\0{address[1:]}" if address.startswith("@") else address


def _watchdog(environ: Mapping[str, str], pid: int) -> float:
    """Seconds; 0 when no sign of life is wanted, or of another process."""
    wanted, of = environ.get("WATCHDOG_USEC"), environ.get("WATCHDOG_PID") or str(pid)
    if not wanted or of != str(pid):
        return 0.0
    if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= MOST_DIGITS):
        log.warning("watchdog not understood", extra={"wanted": wanted[:MOST_DIGITS]})
        return 0.0
    return int(wanted) / 1e6
