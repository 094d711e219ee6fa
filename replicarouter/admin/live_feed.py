"""The feed of the status page: server-sent events, one document for all who look, and only while they do."""

import asyncio
import logging
import socket
from collections.abc import Callable

from aiohttp import web

from replicarouter.errors import Overloaded
from replicarouter.tasks import TaskSet, every

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two documents."""

MOST_VIEWERS = 16
"""Pages that may be open: enough for a team, and a bound on what they cost."""

TAKES = 5.0
"""Seconds a viewer may take nothing before it is dropped."""

SEND_BUFFER = 64 * 1024
"""Bytes the system may hold for a viewer: one that has stopped reading shall be noticed."""

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class LiveFeed:
    """Sends what `draw` returns, a JSON document in one line, to each viewer once a period.

    Nothing is queued: a viewer that is late gets the newest document next. `begin` is called when the first
    viewer comes, before `draw`.
    """

    def __init__(
        self,
        draw: Callable[[], bytes],
        begin: Callable[[], None],
        *,
        period: float = PERIOD,
        takes: float = TAKES,
    ) -> None:
        self._draw = draw
        self._begin = begin
        self._period = period
        self._takes = takes
        self._tasks = TaskSet()
        self._ticker: asyncio.Task[None] | None = None
        self._frame = b""
        self._drawn = asyncio.Event()
        self._cuts = 0
        self.viewers = 0

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Answer a viewer until it leaves or the router ends; raises `Overloaded` when there are too many."""
        if self.viewers >= MOST_VIEWERS:
            raise Overloaded(f"{MOST_VIEWERS} status pages are open already; close one of them.")
        response = web.StreamResponse(headers=_HEADERS)
        self._enter()
        try:
            await response.prepare(request)
            _bound_buffer(request)
            await self._show(request, response)
        except ConnectionError:
            log.debug("status page closed")
        finally:
            self._leave()
        return response

    def cut(self) -> None:
        """End all present answers: whoever may go on looking asks again."""
        self._cuts += 1
        self._drawn.set()

    async def close(self) -> None:
        """End everything: the router stops."""
        self.cut()
        await self._tasks.close()

    def _enter(self) -> None:
        if self._ticker is None:
            self._frame = b""
            self._begin()
            self._ticker = self._tasks.start(every(self._period, self._tick, "status page"), "status page")
        self.viewers += 1

    def _leave(self) -> None:
        self.viewers -= 1
        if not self.viewers and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    async def _tick(self) -> None:
        self._frame = b"data: " + self._draw() + b"\n\n"
        self._drawn.set()
        self._drawn = asyncio.Event()

    async def _show(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send each document as it is drawn, the present one at once."""
        shown, cuts = b"", self._cuts
        while self._cuts == cuts:
            drawn, frame = self._drawn, self._frame
            if frame is not shown and frame:
                shown = frame
                try:
                    async with asyncio.timeout(self._takes):
                        await response.write(frame)
                        await _taken(request, self._period)
                except TimeoutError:
                    log.info("status page dropped", extra={"seconds": self._takes})
                    if request.transport is not None:
                        request.transport.abort()
                    return
            else:
                await drawn.wait()


async def _taken(request: web.Request, look: float) -> None:
    """Wait until the system has taken all that was written."""
    while (transport := request.transport) is not None and transport.get_write_buffer_size():
        await asyncio.sleep(look / 10)


def _bound_buffer(request: web.Request) -> None:
    connection = request.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
