"""Processes that share a memory with the test: forked, since that is how workers come to be."""

import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0
"""Seconds after which a child that should have ended is stuck."""


class Child:
    """A child process that runs `work` and ends; `result` is what that returned."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        self._read, write = os.pipe()
        with warnings.catch_warnings():
            # The test runner has threads; a child uses nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _live(work, args, write)
        os.close(write)
        self.ended = False

    def kill(self) -> None:
        """End it at once, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        self.bury()

    def stop(self) -> None:
        """Let it stand still."""
        os.kill(self.pid, signal.SIGSTOP)

    def is_over(self) -> bool:
        """Whether it has said its result, or died."""
        return bool(select.select([self._read], [], [], 0)[0])

    def result(self) -> Any:
        """Wait for its end; raises what it raised."""
        parts = []
        end = time.monotonic() + PATIENCE
        while True:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.kill()
                raise AssertionError("the child is stuck")
            part = os.read(self._read, 65536)
            if not part:
                break
            parts.append(part)
        self.bury()
        ok, value = pickle.loads(b"".join(parts))
        assert ok, value
        return value

    def bury(self) -> None:
        """Wait for its end."""
        if not self.ended:
            os.waitpid(self.pid, 0)
            os.close(self._read)
            self.ended = True


def _live(work: Callable[..., Any], args: tuple[Any, ...], write: int) -> None:
    status = 1
    try:
        told = pickle.dumps((True, work(*args)))
        status = 0
    except BaseException:
        told = pickle.dumps((False, traceback.format_exc()))
    try:
        while told:
            told = told[os.write(write, told) :]
    finally:
        os._exit(status)
