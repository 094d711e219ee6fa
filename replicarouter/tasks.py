"""Supervised background work: the only place that creates asyncio tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from math import ceil
from typing import Any

log = logging.getLogger(__name__)

REST = 0.5
"""Periods that are at least between the end of one turn and the beginning of the next."""


async def every(
    period: float,
    step: Callable[[], Awaitable[None]],
    name: str,
    *,
    delay: float = 0.0,
    origin: float = 0.0,
) -> None:
    """Run `step` for ever, `period` seconds apart, the first time after `delay` seconds.

    The other turns come whole periods after `origin`, a time of the event loop, so that those of many loops
    stay spread as they are even when something has held all of them up, and so that an idle process wakes
    once for several of them; a turn that takes long lets others out. One failed turn is logged, and the next
    happens.
    """
    await asyncio.sleep(delay)
    clock = asyncio.get_running_loop().time
    while True:
        try:
            await step()
        except Exception:
            log.exception("background turn failed", extra={"step": name})
        now = clock()
        turns = ceil((now - origin) / period + REST)
        await asyncio.sleep(origin + turns * period - now)


class TaskSet:
    """Tasks that live until `close()`: kept referenced, cancelled and awaited in the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` in the background; an exception that escapes it is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", exc_info=error, extra={"task": task.get_name()})

    async def close(self) -> None:
        """Cancel what still runs and wait for it to end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
