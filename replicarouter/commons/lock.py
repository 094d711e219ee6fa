"""One lock over processes. Whoever dies with it must not stop the others: the keeper takes it over."""

import os
from collections.abc import Callable
from typing import Protocol

from replicarouter.commons.layout import HOLDER

PATIENCE = 0.5
"""Seconds after which a lock that nobody has signed must be that of a process that died on its way in or out:
nobody holds it for longer than microseconds."""

ATTEMPTS = 10
"""So often `seize` waits for `PATIENCE` while a living process has signed. Then that one must be stopped."""


class Semaphore(Protocol):
    """A lock of all processes."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Get it; False when it was not to be had in so many seconds."""

    def release(self) -> None:
        """Let others have it, whoever has got it."""


class Lock:
    """`acquire` it, sign with `header[HOLDER] = mark`, write, take the signature back, `release`.

    These five steps are written out where they happen for every request. Elsewhere: `with lock.held(mark)`.
    """

    __slots__ = ("acquire", "header", "release")

    def __init__(self, header: "memoryview[int]", semaphore: Semaphore) -> None:
        self.header = header
        self.acquire = semaphore.acquire
        self.release = semaphore.release

    def held(self, mark: int) -> "Held":
        """For a with-statement."""
        return Held(self, mark)

    def seize(self, dead: int, mark: int, alive: Callable[[int], bool]) -> None:
        """Get the lock, though it may be that of a process that has died: `dead` has, and `alive` tells of
        each other signature whether its process is there."""
        header = self.header
        for _ in range(ATTEMPTS):
            if header[HOLDER] == dead or self.acquire(True, PATIENCE):
                break
            holder = header[HOLDER]
            if not holder or not alive(holder):
                break
        header[HOLDER] = mark


class Held:
    """The lock, signed with `mark`, for as long as a with-statement lasts."""

    __slots__ = ("_lock", "_mark")

    def __init__(self, lock: Lock, mark: int) -> None:
        self._lock = lock
        self._mark = mark

    def __enter__(self) -> None:
        self._lock.acquire()
        self._lock.header[HOLDER] = self._mark

    def __exit__(self, *_: object) -> None:
        self._lock.header[HOLDER] = 0
        self._lock.release()


def is_running(pid: int) -> bool:
    """Whether there is a process of this number; one that nobody has buried yet counts."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
