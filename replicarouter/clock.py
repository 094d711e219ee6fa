"""Time as a parameter: whoever needs the time takes a `Clock`, so that tests can hold it still."""

from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds on a monotonic scale; `time.monotonic` in production."""
