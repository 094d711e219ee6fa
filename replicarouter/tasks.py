"""Supervised background work: the only place that creates asyncio tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


async def every(period: float, step: Callable[[], Awaitable[None]], name: str, *, delay: float = 0.0) -> None:
    """Run `step` for ever, `period` seconds apart, the first time after `delay` seconds.

    One failed turn is logged, and the next happens.
    """
    await asyncio.sleep(delay)
    while True:
        try:
            await step()
        except Exception:
            log.exception("background turn failed", extra={"step": name})
        await asyncio.sleep(period)


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
