"""Time as a parameter: whoever needs the time takes a `Clock`, so that tests can hold it still."""

from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds on a monotonic scale; `time.monotonic` in production."""

CallLater = Callable[[float, Callable[[], None]], object]
"""Calls something after so many seconds; `call_later` of the event loop in production."""


class Seldom:
    """Lets something that happens often be told at most once in `seconds`."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._next = float("-inf")
        self._count = 0

    def tell(self, now: float) -> int:
        """It has happened: how often since it was last told, this time included; 0 while it is too early."""
        self._count += 1
        if now < self._next:
            return 0
        self._next = now + self._seconds
        count, self._count = self._count, 0
        return count
