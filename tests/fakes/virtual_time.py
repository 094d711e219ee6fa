"""An event loop on which waiting takes no time: what is due next happens at once, at its own time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class VirtualTime(asyncio.SelectorEventLoop):
    """Its time stands still while something runs, and then goes on to whatever is due next."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now


class _Skipping(selectors.SelectSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        runner.run(work)
