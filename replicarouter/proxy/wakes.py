"""Has the tasks of clients' connections go on with the requests that have come."""

import asyncio
from typing import Any

from replicarouter.proxy.asyncio_internals import go_on


class Wakes:
    """A task that is woken goes on when all is read that the event loop has found to read: among hundreds of
    streams that is a dozen tokens later. So the first request of a turn of the loop has its task go on at
    once, and whatever else is to be read waits. Where requests come in rows that would be dear: one after
    another they find the code of the one before in the processor's caches, and what they write goes together.
    One turn tells whether the next is to be expected to bring a row.

    `coming`: who was woken in this turn and has not run yet.
    """

    __slots__ = ("_alone", "_loop", "_row", "coming")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._alone = True
        self._row = 0
        self.coming: set[object] = set()

    def wake(self, who: object, waiter: "asyncio.Future[Any]", request: object) -> None:
        """Have the task that waits go on with `request`; it calls `began` when it does."""
        if self._alone and not self._row:
            self._row = 1
            self._loop.call_soon(self._end_turn)
            go_on(waiter, request)
            return
        waiter.set_result(request)
        self.woken(who)

    def woken(self, who: object) -> None:
        """The task of `who` goes on later in this turn."""
        self.coming.add(who)
        self._row += 1

    def began(self, who: object) -> None:
        """It goes on, or never will."""
        coming = self.coming
        if who in coming:
            coming.discard(who)
            if not coming:
                self._alone = self._row == 1
                self._row = 0

    def _end_turn(self) -> None:
        if not self.coming:
            self._row = 0
