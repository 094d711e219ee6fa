"""A small process that does nothing but start workers and see them end.

It is forked before there is an event loop or a thread, so that whatever it forks is whole at any later time,
and has all code loaded: a worker starts in milliseconds, and shares memory with the others.
"""

import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import _exit as end_process
from struct import Struct
from typing import NamedTuple, NoReturn, Self

_ORDER = Struct("!i")
_ENDED = Struct("!iii")
"""Number of the seat, process id, and how it ended; that it has started is told with the status `STARTED`."""

STARTED = -1_000_000

NOT_STARTED = 71
"""The exit status of a worker that could not be forked."""

ENDS_WITHIN = 1.0
"""Seconds in which the nursery has ended that was told to."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that terminals and service managers send to all processes of a service: the keeper acts on them."""

Work = Callable[[int, socket.socket], int]
"""What a worker does, in its seat and with its end of a pair of sockets; its exit status."""


class Ended(NamedTuple):
    """What has become of the worker in a seat: `status` is its exit status, minus the signal that killed it,
    or `STARTED`."""

    seat: int
    pid: int
    status: int


class Nursery:
    """The keeper's end. `fileno` is readable when there is something to `hear`."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self._buffer = b""
        self.pid = pid

    @classmethod
    def open(cls, work: Work) -> Self:
        """Fork it. To be called before this process has a thread or an event loop."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            ours.close()
            _leave(partial(_nurse, theirs, work))
        theirs.close()
        ours.setblocking(False)
        return cls(ours, pid)

    def fileno(self) -> int:
        """To be watched by the event loop."""
        return self._control.fileno()

    def start(self, seat: int, end: socket.socket) -> None:
        """Have a worker started, which gets `end`; this process closes its copy."""
        with suppress(OSError):  # That it is gone is heard.
            socket.send_fds(self._control, [_ORDER.pack(seat)], [end.fileno()])
        end.close()

    def hear(self) -> list[Ended] | None:
        """What has happened since the last time; None when the nursery has ended, and all workers with it."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        self._buffer += data
        whole = len(self._buffer) - len(self._buffer) % _ENDED.size
        news = [Ended(*facts) for facts in _ENDED.iter_unpack(self._buffer[:whole])]
        self._buffer = self._buffer[whole:]
        return news

    def close(self) -> None:
        """End it, and with it any worker that is left. One that hangs, or was stopped, is killed."""
        self._control.close()
        end = time.monotonic() + ENDS_WITHIN
        with suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > end:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    return
                time.sleep(0.002)


def _nurse(control: socket.socket, work: Work) -> int:
    """Fork on order until the keeper has gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # A child's end makes this readable, so that one wait is enough for both.
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    seats: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([control, wake], [], [])
        if wake in readable:
            with suppress(BlockingIOError):
                wake.recv(4096)
            _bury(control, seats)
        if control not in readable:
            continue
        order, ends, _, _ = socket.recv_fds(control, _ORDER.size, 1)
        if len(order) < _ORDER.size:
            break
        (seat,) = _ORDER.unpack(order)
        end = socket.socket(fileno=ends[0])
        try:
            pid = os.fork()
        except OSError:
            # No memory, or too many processes: the keeper will try again.
            end.close()
            _tell(control, seat, 0, NOT_STARTED)
            continue
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (control, wake, woken):
                one.close()
            _leave(partial(work, seat, end))
        end.close()
        seats[pid] = seat
        _tell(control, seat, pid, STARTED)
    for pid in seats:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 0


def _bury(control: socket.socket, seats: dict[int, int]) -> None:
    """Tell of every child that has ended."""
    while seats:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _tell(control, seats.pop(pid), pid, os.waitstatus_to_exitcode(status))


def _tell(control: socket.socket, seat: int, pid: int, status: int) -> None:
    with suppress(OSError):  # The keeper has gone: the next wait shows it.
        control.sendall(_ENDED.pack(seat, pid, status))


def _leave(work: Callable[[], int]) -> NoReturn:
    """Do what a forked process is for, and end it without what the interpreter of its parent had planned for
    its own end."""
    status = 1
    try:
        status = work()
    finally:
        with suppress(OSError):
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        end_process(status)
