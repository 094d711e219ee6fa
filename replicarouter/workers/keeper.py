"""A router of several processes: this one knows the fleet and answers for all, workers carry the requests."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from replicarouter import __version__
from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi, Records
from replicarouter.admin.port import AdminPort
from replicarouter.admission.decisions import Decisions, Kept
from replicarouter.briefing import open_reception, policy_plan
from replicarouter.commons.layout import CLIENTS, LAG, LINES_DROPPED, TRACES_DROPPED
from replicarouter.commons.memory import Commons
from replicarouter.fleet.health import TICK
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import FILE, Replica
from replicarouter.policies.base import Remembered
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet, every
from replicarouter.telemetry import logs
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.departed import Departed
from replicarouter.telemetry.exposition import Exposition
from replicarouter.telemetry.lag import LoopLag
from replicarouter.telemetry.recent import Ended as EndedRequest
from replicarouter.telemetry.recent import RecentErrors
from replicarouter.tls import ReplicaTls, check_files
from replicarouter.warden import Warden
from replicarouter.workers.books import AllLedger, AllMetrics, AllSeries
from replicarouter.workers.bus import packed
from replicarouter.workers.crew import Crew
from replicarouter.workers.floors import AllFloors
from replicarouter.workers.nursery import Nursery
from replicarouter.workers.processes import Processes
from replicarouter.workers.publisher import Publisher
from replicarouter.workers.reservation import Reservation
from replicarouter.workers.worker import Beginning

log = logging.getLogger(__name__)

DRAIN_POLL = 0.05

WORKER_LOST = "worker_lost"
"""The outcome of requests whose worker died with them."""


class Keeper:
    """Looks like a `Router` to whoever starts and stops it. `failed` is called when no worker can be started
    any more."""

    def __init__(
        self,
        settings: Settings,
        commons: Commons,
        nursery: Nursery,
        *,
        origin: str = FILE,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._commons = commons
        self._clock = time.monotonic
        series = AllSeries(commons)
        self.ledger = AllLedger(commons, series)
        self.metrics = AllMetrics(series)
        most = settings.admission.max_outstanding_per_replica
        self.fleet = Fleet(settings.replicas, self.ledger, most=most, origin=origin)
        self._floors = AllFloors(self.fleet, commons, self._give_up)
        self.warden = Warden(
            settings, self.fleet, self._clock, changed=lambda _: self._publisher.soon(), floor=self._floors
        )
        self._crew = Crew(commons.workers, nursery, self._hears, self._answers_of, self._ended, failed)
        self._publisher = Publisher(self.fleet, self.warden.health, self._crew.broadcast)
        self._replica_tls = ReplicaTls(settings.tls)
        self._lag = LoopLag(self._clock)
        self._processes = Processes(self._crew.pids)
        self._memories: dict[int, dict[str, Remembered]] = {}
        self._dropped: dict[str, Remembered] = {}
        self._settled: dict[int, dict[str, int]] = {}
        self._aliases = dict(settings.aliases)
        self.draining = False
        self.reloaded = True
        self.sources = self._open_sources()
        self._exposition = Exposition(RouterCollector(self.sources).families)
        self._answers = OwnAnswers(
            self.fleet,
            self._exposition.page,
            version=__version__,
            draining=lambda: self.draining,
            exposing=lambda: self.settings.expose_replica,
            aliases=self._aliases,
        )
        self._decisions = Decisions(settings.policy_options.decisions_per_second)
        self._recent = RecentErrors()
        self._reservation: Reservation | None = None
        self._admin: AdminPort | None = None
        self._admin_api: AdminApi | None = None
        self._tasks = TaskSet()

    def _open_sources(self) -> Sources:
        commons = self._commons
        return Sources(
            fleet=self.fleet,
            ledger=self.ledger,
            metrics=self.metrics,
            works=self._floors.works,
            clock=self._clock,
            lag=self._longest_lag,
            version=__version__,
            connector=self.settings.connector,
            scrape_interval=self.settings.scrape.interval,
            admission=lambda: self.settings.admission,
            policy_of=lambda model: policy_plan(self.settings).name_for(model),
            clients=lambda: commons.gauge(CLIENTS),
            process=self._processes.collect,
            wall=time.time,
            reloaded=lambda: self.reloaded,
            memories=self._all_memories,
            traces_dropped=lambda: commons.gauge(TRACES_DROPPED),
            lines_dropped=lambda: logs.dropped_lines() + commons.gauge(LINES_DROPPED),
            workers=commons.workers,
            restarts=lambda: self._crew.restarts,
        )

    @property
    def port(self) -> int:
        """The port clients connect to, 0 before it is open."""
        return self._reservation.port if self._reservation is not None else 0

    @property
    def admin_port(self) -> int:
        """The operator's port, 0 when there is none."""
        return self._admin.port if self._admin is not None else 0

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return sum(self.ledger.received().values()) - sum(count for _, count in self.ledger.finished)

    async def start(self) -> None:
        """Probe every replica once, then have the workers listen. Raises `CannotListen`, as when a port is
        taken."""
        settings = self.settings
        try:
            self._reservation = Reservation.of(settings.host, settings.port)
            self._crew.start()
            self.warden.open(self._replica_tls.context)
            self.fleet.listeners += [Departed(self.ledger, self.metrics), self._publisher]
            await self.warden.first_look()
            await self._open_admin()
            await self._crew.begin(self._beginning)
        except BaseException:
            await self.stop()
            raise
        self.warden.start()
        self._tasks.start(self._lag.watch(), "event loop lag")
        self._tasks.start(every(TICK, self._tick, "tell the workers"), "tell the workers")

    async def drain(self, *, delay: float, limit: float) -> bool:
        """Say not ready at once, refuse new requests after `delay` seconds, wait for those in flight.

        False when some still ran after `limit` more seconds (0: no bound).
        """
        self.draining = True
        self._crew.broadcast(packed("draining"))
        await asyncio.sleep(delay)
        self._crew.broadcast(packed("refuse"))
        end = self._clock() + limit
        while (busy := await self._crew.any_busy()) and (not limit or self._clock() < end):
            await asyncio.sleep(DRAIN_POLL)
        return not busy

    def apply(self, settings: Settings) -> None:
        """Go on by other settings, with all workers; raises `SettingsError` before anything has changed."""
        open_reception(settings)
        check_files(settings.tls)
        assert self._reservation is not None
        self.settings = settings
        logs.set_level(settings.log.level)
        self._replica_tls.replace(settings.tls)
        self._aliases.clear()
        self._aliases.update(settings.aliases)
        if self._admin_api is not None:
            self._admin_api.reconfigure(settings.admin)
        self.warden.apply(settings)
        self._publisher.publish()
        self._crew.broadcast(packed("settings", self._reservation.told(settings)))

    async def stop(self) -> None:
        """Close everything now; requests in flight are cut."""
        await self._tasks.close()
        await self.warden.close()
        await self._crew.stop()
        if self._admin is not None:
            await self._admin.close()
        if self._reservation is not None:
            self._reservation.close()

    # Workers

    def _beginning(self) -> Beginning:
        assert self._reservation is not None
        return Beginning(
            settings=self._reservation.told(self.settings),
            workers=self._commons.workers,
            portraits=self._publisher.everything(),
            origin=self.fleet.origin,
            draining=self.draining,
        )

    def _hears(self, seat: int) -> dict[str, Callable[..., None]]:
        """What is done when the worker in this seat says something."""
        health = self.warden.health

        def about(act: Callable[..., None]) -> Callable[..., None]:
            """Of a replica that is still the one that was meant."""

            def hear(name: str, row: int, *facts: Any) -> None:
                replica = self.fleet.known(name)
                if replica is not None and replica.row == row:
                    act(replica, *facts)
                    self._publisher.soon()

            return hear

        def failed(replica: Replica, reason: str, leased_at: float | None) -> None:
            now = self._clock()
            replica.failed(now)
            health.failed(replica, now, reason, leased_at=leased_at)

        def tick(
            failures: list[EndedRequest], decisions: list[Kept], memories: dict[str, Remembered]
        ) -> None:
            for failure in failures:
                self._recent.remember(failure)
            self._decisions.hear(decisions)
            self._memories[seat] = memories
            self._crew.heard(seat)

        return {
            "answered": about(health.answered),
            "failed": about(failed),
            "busy": about(lambda replica, after: health.busy(replica, self._clock(), after)),
            "leaving": about(lambda replica: health.leaving(replica, self._clock())),
            "refused": about(self.warden.refused),
            "idle": about(self.fleet.idle),
            "tick": tick,
            "pass on": lambda message: self._crew.broadcast(message, but=seat),
        }

    async def _page(self) -> bytes:
        return self._exposition.page()

    def _answers_of(self, seat: int) -> dict[str, Callable[..., Any]]:
        return {"page": self._page, "maker": partial(self._crew.ask_others, seat, "maker")}

    def _ended(self, seat: int) -> None:
        """The worker in this seat has died: what it held is free, what it had in flight has ended."""
        self._commons.vacate(seat)
        for model, memory in self._memories.pop(seat, {}).items():
            dropped = Remembered(outlived=memory.outlived, cut=memory.cut)
            self._dropped[model] = self._dropped.get(model, Remembered()).plus(dropped)
        settled = self._settled.setdefault(seat, {})
        for endpoint, count in self.ledger.lost_by(seat, settled).items():
            settled[endpoint] = settled.get(endpoint, 0) + count
            self.ledger.finished.add((endpoint, "", "", WORKER_LOST), count)
            log.error("requests lost with a worker", extra={"worker": seat, "count": count})
        self._crew.broadcast(packed("lost", seat), but=seat)
        for replica in self.fleet.replicas:
            self.fleet.idle(replica)

    def _give_up(self, replica: Replica) -> None:
        self._crew.broadcast(packed("give up", replica.name))

    async def _tick(self) -> None:
        self._publisher.publish()
        # Not by the clock: a keeper that was stopped itself has not heard anybody.
        self._crew.watch(TICK)

    # What is told of all

    def _longest_lag(self) -> float:
        return max(self._lag.seconds, *(seat.floats[LAG] for seat in self._commons.seats))

    def _all_memories(self) -> dict[str, Remembered]:
        """What the policies of the workers remember, all much the same: as many entries as one has, the bytes
        of all, and all that was ever dropped."""
        sums = dict(self._dropped)
        for memories in self._memories.values():
            for model, memory in memories.items():
                before = sums.get(model, Remembered())
                _, *others = before.plus(memory)
                sums[model] = Remembered(max(before.entries, memory.entries), *others)
        return sums

    async def _open_admin(self) -> None:
        settings = self.settings.admin
        if not settings.port:
            return
        self._admin_api = AdminApi(
            settings,
            self.sources,
            self._answers,
            Records(self._decisions, self._recent, self._crew),
            own_ports=lambda: (self.port, self.admin_port),
        )
        self._admin = AdminPort(self._admin_api.application())
        await self._admin.open(settings.host, settings.port)
