"""The workers as the keeper has them: started, heard, asked, and replaced when they end."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from signal import SIGKILL, Signals
from typing import Any

from replicarouter.errors import CannotListen, CannotStart, Overloaded
from replicarouter.tasks import TaskSet
from replicarouter.workers.bus import Answerer, Bus, Hear
from replicarouter.workers.nursery import STARTED, Ended, Nursery
from replicarouter.workers.worker import Beginning

log = logging.getLogger(__name__)

STARTS_WITHIN = 30.0
"""Seconds in which a worker must listen."""

STOPS_WITHIN = 5.0
"""Seconds in which workers that were told to stop have ended; the others are killed."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds before a worker is replaced that did not live for long: doubled each time, so that one that cannot
live does not keep a core busy."""

TELLS_WITHIN = 0.25
"""Seconds in which a worker has told of itself that was asked to: later than that it does so by itself."""

SILENT_FOR = 30.0
"""Seconds after which a worker that tells nothing of itself hangs. It does so four times a second."""

LONG_LIFE = 30.0
"""Seconds after which the next death of a worker counts as its first."""


class WorkerEnded(CannotStart):
    """A worker ended before it listened, or did not listen in time."""


@dataclass(slots=True)
class Member:
    """One seat. `end` is our end of the sockets to its worker until the `bus` has it; `begun`: it has been
    sent its beginning, and understands what comes after that; `up` is done when it listens; `silent`: seconds
    for which it has not been heard."""

    seat: int
    bus: Bus
    end: socket.socket
    up: "asyncio.Future[None]"
    started_at: float
    pid: int = 0
    pause: float = FIRST_PAUSE
    begun: bool = False
    silent: float = 0.0

    @property
    def understands(self) -> bool:
        """Whether it can be asked."""
        return self.begun and self.bus.open


class Crew:
    """All seats. `hears` and `answers` say what is done when the worker in a seat says or asks something;
    `ended` is called when it has died, before there is another; `failed` when there can be none any more."""

    def __init__(
        self,
        size: int,
        nursery: Nursery,
        hears: Callable[[int], Mapping[str, Hear]],
        answers: Callable[[int], Mapping[str, Answerer]],
        ended: Callable[[int], None],
        failed: Callable[[], None],
    ) -> None:
        self._nursery = nursery
        self._hears = hears
        self._answers = answers
        self._tell_ended = ended
        self._tell_failed = failed
        self._size = size
        self._members: list[Member] = []
        self._beginning: Callable[[], Beginning] | None = None
        self._serving = self._stopping = self._orphaned = False
        self._gone = asyncio.Event()
        self._tasks = TaskSet()
        self.restarts = 0

    def pids(self) -> Sequence[int]:
        """This process and those of the workers that live."""
        return [os.getpid(), *(member.pid for member in self._members if member.pid)]

    def start(self) -> None:
        """Have all workers started; they wait for their `begin`."""
        asyncio.get_running_loop().add_reader(self._nursery.fileno(), self._hear_nursery)
        self._members = [self._start(seat) for seat in range(self._size)]

    async def begin(self, beginning: Callable[[], Beginning]) -> None:
        """Have them listen. Raises `CannotListen`, and `WorkerEnded` when one ends instead."""
        self._beginning = beginning
        await asyncio.gather(*(self._begin(member) for member in self._members))
        self._serving = True

    def broadcast(self, message: bytes, *, but: int | None = None) -> None:
        """Send a packed message to all workers that have begun, or all but one."""
        for member in self._members:
            if member.begun and member.seat != but:
                member.bus.pass_on(message)

    async def ask_all(self, question: str, *facts: Any) -> list[Any]:
        """The answers of all workers; raises `Overloaded` when one gives none."""
        return list(await asyncio.gather(*(bus.ask(question, *facts) for bus in self._buses())))

    async def ask_others(self, seat: int, question: str, *facts: Any) -> Any:
        """The first answer of a worker in another seat that is not empty; an empty one if there is none."""

        async def answer(bus: Bus) -> Any:
            with suppress(Overloaded):
                return await bus.ask(question, *facts)
            return ()

        asked = [answer(member.bus) for member in self._members if member.seat != seat and member.understands]
        for first in asyncio.as_completed(asked):
            if said := await first:
                return said
        return ()

    async def any_busy(self) -> bool:
        """Whether some worker has requests. One that gives no answer is busy; one that has ended is not."""
        buses = self._buses()
        answers = await asyncio.gather(*(bus.ask("busy") for bus in buses), return_exceptions=True)
        for bus, answer in zip(buses, answers, strict=True):
            if not isinstance(answer, Overloaded | bool):
                raise answer
            if answer is True or (answer is not False and bus.open):
                return True
        return False

    def heard(self, seat: int) -> None:
        """The worker in this seat has told of itself."""
        self._members[seat].silent = 0.0

    def watch(self, elapsed: float) -> None:
        """Kill workers that have not been heard for long: such a one holds its clients up, and the operating
        system gives it more of them. `elapsed`: seconds since the last time."""
        for member in self._members:
            if not member.pid or not member.up.done():
                continue
            member.silent += elapsed
            if member.silent >= SILENT_FOR:
                member.silent = 0.0
                log.error("worker hangs, and is killed", extra={"worker": member.seat, "pid": member.pid})
                _kill(member)

    async def stop(self) -> None:
        """Have all of them close, and kill those that do not."""
        self._stopping = True
        await self._tasks.close()
        for member in self._members:
            member.bus.send("stop")
        if any(self._living()):
            try:
                async with asyncio.timeout(STOPS_WITHIN):
                    await self._gone.wait()
            except TimeoutError:
                self._kill_all()
        asyncio.get_running_loop().remove_reader(self._nursery.fileno())
        self._nursery.close()

    # For the admin API

    async def rows(self) -> list[dict[str, Any]]:
        """The requests in flight of all workers, the oldest first."""
        lists = await self.ask_all("requests")
        return sorted((row for rows in lists for row in rows), key=lambda row: -row["age"])

    async def cancel(self, request_id: str) -> bool:
        """End a request in flight; False when no worker has one of this id."""
        return any(await self.ask_all("cancel", request_id))

    async def tell(self) -> None:
        """Have all workers tell what they tell four times a second; who hangs is not waited for."""
        with suppress(TimeoutError, Overloaded):
            async with asyncio.timeout(TELLS_WITHIN):
                await self.ask_all("tell")

    # One seat

    def _start(self, seat: int) -> Member:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        up: asyncio.Future[None] = loop.create_future()

        def cannot_listen(port: int, number: int, why: str) -> None:
            _settle(up, CannotListen("", port, OSError(number, why)))

        own: Mapping[str, Hear] = {"up": partial(_settle, up), "cannot listen": cannot_listen}
        bus = Bus({**self._hears(seat), **own}, self._answers(seat), partial(self._lost, seat))
        self._nursery.start(seat, theirs)
        return Member(seat, bus, ours, up, loop.time())

    async def _begin(self, member: Member) -> None:
        assert self._beginning is not None
        await member.bus.connect(member.end)
        member.begun = True
        member.bus.send("begin", self._beginning())
        try:
            async with asyncio.timeout(STARTS_WITHIN):
                await member.up
        except TimeoutError:
            _kill(member)
            raise WorkerEnded(f"A worker did not listen within {STARTS_WITHIN:g} seconds.") from None

    def _hear_nursery(self) -> None:
        news = self._nursery.hear()
        if news is None:
            asyncio.get_running_loop().remove_reader(self._nursery.fileno())
            self._orphaned = True
            if not self._stopping:
                log.error("nursery ended")
                self._tell_failed()
            return
        for event in news:
            if event.status == STARTED:
                self._members[event.seat].pid = event.pid
            else:
                self._bury(self._members[event.seat], event)

    def _bury(self, member: Member, event: Ended) -> None:
        member.pid = 0
        member.bus.close()
        self._tell_ended(member.seat)
        if self._stopping:
            self._note_end()
            return
        log.error("worker ended", extra={"worker": member.seat, "pid": event.pid, "how": _how(event.status)})
        _settle(member.up, WorkerEnded(f"A worker ended while it started: {_how(event.status)}."))
        if self._serving:
            self.restarts += 1
            self._tasks.start(self._replace(member), f"replace worker {member.seat}")

    async def _replace(self, former: Member) -> None:
        lived = asyncio.get_running_loop().time() - former.started_at
        pause = 0.0
        if lived < LONG_LIFE:
            await asyncio.sleep(former.pause)
            pause = min(LONGEST_PAUSE, 2 * former.pause)
        member = self._members[former.seat] = self._start(former.seat)
        member.pause = max(FIRST_PAUSE, pause)
        try:
            await self._begin(member)
        except (WorkerEnded, CannotListen) as error:
            # Its end is heard, and is followed by the next attempt.
            log.warning("worker does not start", extra={"worker": member.seat, "why": str(error)})
            _kill(member)
            return
        log.info("worker replaced", extra={"worker": member.seat, "pid": member.pid})
        # Stored responses are known to those who have seen them; what policies know comes back by itself.
        for other in self._members:
            if other is not member and other.understands:
                with suppress(Overloaded):  # It has ended, or hangs: another one knows as much.
                    member.bus.send("made", await other.bus.ask("made"))
                    break

    def _buses(self) -> list[Bus]:
        """Those of workers that understand."""
        return [member.bus for member in self._members if member.understands]

    def _living(self) -> Iterator[Member]:
        return (member for member in self._members if member.pid)

    def _lost(self, seat: int) -> None:
        """A worker has closed its end. That its process has ended the nursery tells, if that is there."""
        if self._orphaned:
            self._members[seat].pid = 0
            self._note_end()

    def _note_end(self) -> None:
        if self._stopping and not any(self._living()):
            self._gone.set()

    def _kill_all(self) -> None:
        left = list(self._living())
        for member in left:
            _kill(member)
        log.warning("workers killed", extra={"count": len(left)})


def _kill(member: Member) -> None:
    """End its process, if there is one."""
    if member.pid:
        with suppress(ProcessLookupError):
            os.kill(member.pid, SIGKILL)


def _settle(up: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if up.done():
        return
    if error is None:
        up.set_result(None)
        return
    up.set_exception(error)
    up.exception()  # Seen, though nobody may wait for it.


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return Signals(-status).name
    return f"signal {-status}"
