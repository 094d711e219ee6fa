"""One worker: a data plane of its own, under a fleet that the keeper knows. Builds all of it."""

import asyncio
import gc
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import uvloop

from replicarouter import __version__
from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.requests import OwnRequests
from replicarouter.admission.desk import Told
from replicarouter.admission.owners import Made
from replicarouter.commons.layout import CLIENTS, LAG, LINES_DROPPED, TRACES_DROPPED
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat
from replicarouter.errors import CannotListen, RouterError, SettingsError
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.health import TICK
from replicarouter.fleet.mirror import Mirror, Portrait
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import OwnFloor
from replicarouter.plane import Plane, Surroundings
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.proxy.handler import Later
from replicarouter.settings import Settings
from replicarouter.settings.sections import LogSettings
from replicarouter.tasks import TaskSet, every
from replicarouter.telemetry import logs
from replicarouter.telemetry.exposition import CONTENT_TYPE
from replicarouter.telemetry.lag import LoopLag
from replicarouter.telemetry.metrics import Metrics
from replicarouter.telemetry.recent import Ended
from replicarouter.workers.bus import Answerer, Bus, Hear
from replicarouter.workers.floors import Looks
from replicarouter.workers.messenger import Messenger
from replicarouter.workers.teller import Teller

log = logging.getLogger(__name__)

GC_THRESHOLD = 20_000
"""Allocations between two looks of the cycle collector: a request leaves hardly any cycles behind."""

MAKER_WITHIN = 1.0
"""Seconds in which another worker has told of a response that it has seen."""

MOST_ENDED = 4096
"""Failures that are told of one tick; more of them say nothing new."""

STOPPED, ORPHANED = 0, 1
"""How a worker ends: as it was told to, or since its keeper has gone."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a worker has to know before it takes clients: the settings in force with the port that was found,
    how many workers there are, the fleet, and whether the router is shutting down."""

    settings: Settings
    workers: int
    portraits: Sequence[Portrait]
    origin: str
    draining: bool


class Post:
    """All that a worker has once it knows the fleet. `end` ends the worker with an exit status."""

    def __init__(self, seat: Seat, beginning: Beginning, bus: Bus, end: Callable[[int], None]) -> None:
        self._seat = seat
        self._bus = bus
        self._end = end
        self._settings = settings = beginning.settings
        self._clock = time.monotonic
        self._draining = False
        self._failures: deque[Ended] = deque(maxlen=MOST_ENDED)
        self._hopeless: set[str] = set()
        self._tasks = TaskSet()
        self._lag = LoopLag(self._clock)
        self._ledger = WorkerLedger(seat)
        self._fleet = Fleet((), self._ledger, origin=beginning.origin)
        aliases = dict(settings.aliases)
        self._answers = OwnAnswers(
            self._fleet,
            lambda: b"",
            version=__version__,
            draining=lambda: self._draining,
            exposing=lambda: self._settings.expose_replica,
            aliases=aliases,
        )
        self._plane = plane = Plane(settings, self._surroundings(aliases, beginning.workers))
        plane.recent.tell = self._failures.append
        teller = Teller(seat.index, bus, plane.desks, plane.owners)
        plane.desks.share(seat.index, beginning.workers, teller.stir)
        plane.owners.share(self._ask_for_maker, teller.stir)
        plane.decisions.share(beginning.workers)
        self._fleet.listeners += plane.open()
        self._mirror = Mirror(self._fleet, plane.forget_connections)
        self._floor = OwnFloor(self._fleet, settings.health.stall_end)
        self._looks = Looks(self._fleet, self._floor, seat)
        self._requests = OwnRequests(self._ledger, self._clock)
        self.adopt(beginning.portraits)
        if beginning.draining:
            self.say_draining()
            self.refuse_new()
        self._tasks.start(self._open(), "open the port")

    def _surroundings(self, aliases: dict[str, str], workers: int) -> Surroundings:
        messenger = Messenger(self._bus)
        return Surroundings(
            fleet=self._fleet,
            ledger=self._ledger,
            metrics=Metrics(self._seat.shelf),
            verdicts=messenger,
            refused=messenger.refused,
            idle=messenger.idle,
            local=self._local,
            aliases=aliases,
            clock=self._clock,
            workers=workers,
        )

    def hears(self) -> Mapping[str, Hear]:
        """What is done when the keeper says something."""
        return {
            "fleet": self.adopt,
            "removed": self._mirror.remove,
            "settings": self.apply,
            "give up": self._hopeless.add,
            "news": self._hear,
            "made": self._hear_made,
            "lost": self._plane.desks.lost,
            "draining": self.say_draining,
            "refuse": self.refuse_new,
        }

    def answers(self) -> Mapping[str, Answerer]:
        """What the keeper may ask."""
        return {
            "requests": self._requests.rows,
            "cancel": self._requests.cancel,
            "busy": self._is_busy,
            "made": self._all_made,
            "maker": self._maker,
            "tell": self._tick,
        }

    async def close(self) -> None:
        """Close everything now; requests in flight are cut."""
        await self._tasks.close()
        await self._plane.close()

    async def _open(self) -> None:
        try:
            await self._plane.listen()
        except CannotListen as error:
            self._bus.send("cannot listen", error.port, error.errno, error.strerror)
            self._end(ORPHANED)
            return
        self._tasks.start(self._lag.watch(), "event loop lag")
        self._tasks.start(every(TICK, self._tick, "tell the keeper"), "tell the keeper")
        # What lives now lives for ever: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        self._bus.send("up")

    # What the keeper tells

    def adopt(self, portraits: Sequence[Portrait]) -> None:
        """Believe this of the fleet."""
        self._mirror.adopt(portraits)
        self._plane.note_cooling()

    def apply(self, settings: Settings) -> None:
        """Go on by other settings; the fleet under them has been told before."""
        try:
            reception = self._plane.check(settings)
        except SettingsError as error:
            # The keeper has found them usable: a file has changed since.
            log.warning("settings not taken over", extra={"worker": self._seat.index, "why": str(error)})
            return
        self._settings = settings
        logs.set_level(settings.log.level)
        self._plane.apply(settings, reception)
        self._plane.replan(settings)

    def say_draining(self) -> None:
        """The router is shutting down."""
        self._draining = True

    def refuse_new(self) -> None:
        """Answer new requests with 503."""
        self._plane.refuse_new()

    def _hear(self, worker: int, told: Sequence[Told], made: Sequence[Made]) -> None:
        self._plane.desks.hear(worker, told, self._fleet.pools, self._clock())
        self._hear_made(made)

    def _hear_made(self, made: Sequence[Made]) -> None:
        self._plane.owners.hear(made, self._fleet)

    async def _is_busy(self) -> bool:
        return self._plane.busy

    async def _maker(self, response_id: str) -> Sequence[Made]:
        return self._plane.owners.maker(response_id)

    async def _ask_for_maker(self, response_id: str) -> Sequence[Made]:
        made: Sequence[Made] = ()
        with suppress(RouterError, TimeoutError):
            async with asyncio.timeout(MAKER_WITHIN):
                made = await self._bus.ask("maker", response_id)
        return made

    async def _all_made(self) -> Sequence[Made]:
        return self._plane.owners.all()

    # What the keeper and the others are told

    async def _tick(self) -> None:
        now, seat = self._clock(), self._seat
        works = self._looks.write()
        self._ledger.publish()
        for name, work in works.items():
            if work.waiting:
                self._floor.give_up(self._fleet.find(name), now, everything=name in self._hopeless)
        self._hopeless.clear()
        seat.gauges[CLIENTS] = self._plane.clients
        seat.gauges[TRACES_DROPPED] = self._plane.traces_dropped
        seat.gauges[LINES_DROPPED] = logs.dropped_lines()
        seat.floats[LAG] = self._lag.seconds
        failures, decisions = [*self._failures], self._plane.decisions.news()
        self._failures.clear()
        self._bus.send("tick", failures, decisions, dict(self._plane.desks.remembered()))

    # What is asked of the router itself

    def _local(self, path: str, query: str) -> LocalAnswer | Later | None:
        return self._metrics_page if path == "/metrics" else self._answers.find(path, query)

    async def _metrics_page(self) -> LocalAnswer:
        """The keeper knows all workers' metrics."""
        try:
            return LocalAnswer(200, await self._bus.ask("page"), CONTENT_TYPE)
        except RouterError as error:
            return error_answer(error)


class Worker:
    """The process in one seat, from its first message to its end."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._hears: dict[str, Hear] = {"begin": self._begin, "stop": lambda: self._end(STOPPED)}
        self._answers: dict[str, Answerer] = {}
        self._bus = Bus(self._hears, self._answers, lambda: self._end(ORPHANED))
        self._post: Post | None = None

    async def run(self, end: socket.socket) -> int:
        """Serve, until told to stop or left alone; the status to exit with."""
        await self._bus.connect(end)
        status = await self._ended
        if self._post is not None:
            await self._post.close()
        self._bus.close()
        return status

    def _begin(self, beginning: Beginning) -> None:
        self._post = post = Post(self._seat, beginning, self._bus, self._end)
        self._hears.update(post.hears())
        self._answers.update(post.answers())

    def _end(self, status: int) -> None:
        if not self._ended.done():
            self._ended.set_result(status)


def work(commons: Commons, log: LogSettings, seat: int, end: socket.socket) -> int:
    """Be the worker in this seat, in a process of its own that has just been forked; its exit status."""
    logs.set_up(log.level, log.format)
    gc.unfreeze()
    try:
        return uvloop.run(_run(commons, seat, end))
    finally:
        # A forked process ends without what the interpreter does in the end.
        logs.flush()


async def _run(commons: Commons, seat: int, end: socket.socket) -> int:
    end.setblocking(False)
    return await Worker(commons.seat(seat)).run(end)
