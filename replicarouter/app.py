"""The composition root: builds every room, starts and stops them. Nobody else constructs."""

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random

import aiohttp
from prometheus_client import ProcessCollector

from replicarouter import __version__
from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi
from replicarouter.admin.port import AdminPort
from replicarouter.admission.controller import Admission, QueueRules
from replicarouter.admission.decisions import Decisions
from replicarouter.admission.desk import Desks
from replicarouter.admission.owners import Owners
from replicarouter.briefing import (
    FirstContents,
    attempt_terms,
    corridor_limits,
    handshake_limit,
    key_reader,
    key_terms,
    open_reception,
    parser_options,
    policy_plan,
    retry_rules,
    tracing_rules,
)
from replicarouter.clock import Clock
from replicarouter.errors import Draining
from replicarouter.exchange import Exchange
from replicarouter.fleet.fetch import open_session
from replicarouter.fleet.health import TICK, Health
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.probe import Prober
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import FILE, Replica
from replicarouter.fleet.scrape import Scraper
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.proxy.aiohttp_connector import Connector
from replicarouter.proxy.aiohttp_internals import FrontServer
from replicarouter.proxy.courier import Courier, Roads
from replicarouter.proxy.descriptors import Descriptors
from replicarouter.proxy.entrance import Entrance
from replicarouter.proxy.handler import Corridor, Rooms
from replicarouter.proxy.intake import Intake
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.register import Register
from replicarouter.proxy.retry import RetryBudget
from replicarouter.proxy.slots import Slots
from replicarouter.proxy.upstream import Upstream
from replicarouter.reload.roster import Roster
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet, every
from replicarouter.telemetry import logs
from replicarouter.telemetry.access_log import AccessLog
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.departed import Departed
from replicarouter.telemetry.exposition import Exposition
from replicarouter.telemetry.lag import LoopLag
from replicarouter.telemetry.metrics import Metrics
from replicarouter.telemetry.recent import RecentErrors
from replicarouter.telemetry.refusals import Refusals
from replicarouter.tls import ClientTls, ReplicaTls, check_files
from replicarouter.tracing.opening import open_exporter

log = logging.getLogger(__name__)

DRAIN_POLL = 0.02

SPANS_FLUSH = 3.0
"""Seconds for which the last spans are waited for in the end."""

TURNS_TO_TELL = 3
"""Turns of the event loop in which requests that are cut say so to their clients."""


class Router:
    """One router in one process. Use it on a running loop: `start`, then `stop`."""

    def __init__(self, settings: Settings, *, origin: str = FILE, clock: Clock = time.monotonic) -> None:
        self.settings = settings
        self.ledger = Ledger()
        most = settings.admission.max_outstanding_per_replica
        self.fleet = Fleet(settings.replicas, self.ledger, most=most, origin=origin)
        self.metrics = Metrics()
        self._decisions = Decisions(settings.policy_options.decisions_per_second)
        self._desks = Desks(policy_plan(settings), self.metrics, self._decisions)
        self._clock = clock
        self._body_memory = BodyMemory(settings.max_buffered_bytes)
        self.health = Health(self.fleet, settings, clock)
        self.reception = open_reception(settings)
        self._client_tls = ClientTls(settings.tls)
        self._replica_tls = ReplicaTls(settings.tls)
        self._lag = LoopLag(clock)
        self.sources = self._open_sources(clock)
        self._aliases = dict(settings.aliases)
        self._answers = OwnAnswers(
            self.fleet,
            Exposition(RouterCollector(self.sources).families).page,
            version=__version__,
            draining=lambda: self.draining,
            exposing=lambda: self.settings.expose_replica,
            aliases=self._aliases,
        )
        self._access_log = AccessLog(settings.log.sample)
        self._tracing = tracing_rules(settings)
        self._recent = RecentErrors()
        self._observers: list[Callable[[Exchange], None]] = [
            self.metrics.observe,
            self._recent.observe,
            self._access_log.observe,
            Refusals().observe,
        ]
        self._exporter = open_exporter(settings.tracing, self.fleet, version=__version__, clock=clock)
        if self._exporter is not None:
            self._observers.append(self._exporter.observe)
        self.draining = False
        self.reloaded = True
        self._tasks = TaskSet()
        self._admission: Admission | None = None
        self._courier: Courier | None = None
        self._corridor: Corridor | None = None
        self._front: FrontServer | None = None
        self._descriptors = Descriptors.of_process(replicas=len(settings.replicas))
        self._entrance: Entrance | None = None
        self._upstream: Upstream | None = None
        self._sessions: tuple[aiohttp.ClientSession, ...] = ()
        self._prober: Prober | None = None
        self._scraper: Scraper | None = None
        self._admin: AdminPort | None = None
        self._admin_api: AdminApi | None = None
        self._roster = Roster(self.fleet, self._replica_changed)

    def _open_sources(self, clock: Clock) -> Sources:
        """What metrics and reports are read from."""
        return Sources(
            fleet=self.fleet,
            ledger=self.ledger,
            metrics=self.metrics,
            clock=clock,
            lag=lambda: self._lag.seconds,
            version=__version__,
            connector=self.settings.connector,
            scrape_interval=self.settings.scrape.interval,
            admission=lambda: self.settings.admission,
            policy_of=self._desks.policy_of,
            clients=lambda: self._front.in_use if self._front is not None else 0,
            process=ProcessCollector("replicarouter", registry=None).collect,
            wall=time.time,
            reloaded=lambda: self.reloaded,
            memories=self._desks.remembered,
            traces_dropped=lambda: self._exporter.dropped if self._exporter is not None else 0,
        )

    @property
    def port(self) -> int:
        """The port clients connect to, 0 before it is open."""
        return self._entrance.port if self._entrance is not None else 0

    @property
    def admin_port(self) -> int:
        """The operator's port, 0 when there is none."""
        return self._admin.port if self._admin is not None else 0

    async def start(self) -> None:
        """Probe every replica once, then listen. Raises `CannotListen`, as when a port is taken."""
        settings = self.settings
        # A probe has to find out whether the port still takes connections, so it never reuses one.
        trust = self._replica_tls.context
        probing = open_session(aiohttp.TCPConnector(limit=0, force_close=True, ssl=trust))
        # Until the next scrape and no longer: a replica that is removed is soon left alone.
        keepalive = min(settings.connector.keepalive, 2 * settings.scrape.interval)
        scraping = open_session(aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive, ssl=trust))
        self._sessions = (probing, scraping)
        self._prober = Prober(self.fleet, probing, settings.health, self._clock)
        self._scraper = Scraper(self.fleet, scraping, settings.scrape, self._clock)
        self._upstream = self._open_upstream()
        self._corridor = self._build_corridor(self._upstream, self._prober, self._scraper)
        try:
            await self._prober.probe_all()
            # First, so that what it says of a replica is known to all others; and only now, because those
            # that are ready when the router starts have nobody to stand in for them while they start slowly.
            self.fleet.listeners.insert(0, self.health)
            # The operator's door first: who finds the other open finds this one too.
            await self._open_admin()
            await self._listen(self._corridor)
        except BaseException:
            await self.stop()
            raise
        self._prober.start()
        self._scraper.start()
        self._tasks.start(self._lag.watch(), "event loop lag")
        self._tasks.start(every(TICK, self._tick, "health"), "health")

    async def drain(self, *, delay: float, limit: float) -> bool:
        """Say not ready at once, refuse new requests after `delay` seconds, wait for those in flight.

        False when some still ran after `limit` more seconds (0: no bound).
        """
        self.draining = True
        await asyncio.sleep(delay)
        if self._corridor is not None:
            self._corridor.draining = True
        end = self._clock() + limit
        while self._busy and (not limit or self._clock() < end):
            await asyncio.sleep(DRAIN_POLL)
        return not self._busy

    def apply(self, settings: Settings) -> None:
        """Go on by other settings; raises `SettingsError` before anything has changed.

        What is built into listeners and connectors stays as it is: `reload.fixed` says what.
        """
        reception = open_reception(settings)
        check_files(settings.tls)
        self._replica_tls.replace(settings.tls)
        self._client_tls.replace(settings.tls)
        before, self.settings = self.settings, settings
        logs.set_level(settings.log.level)
        self._access_log.sample = settings.log.sample
        self._tracing.start, self._tracing.ratio = settings.tracing.start, settings.tracing.sample_ratio
        self._decisions.reconfigure(settings.policy_options.decisions_per_second)
        self._aliases.clear()
        self._aliases.update(settings.aliases)
        self.reception.replace(reception.door, reception.cors, reception.priority)
        assert self._upstream is not None
        assert self._admission is not None
        assert self._courier is not None
        assert self._corridor is not None
        self._upstream.reconfigure(slot_timeout=settings.admission.queue_timeout)
        timings = FirstContents(self.metrics, self._admission)
        self._courier.terms = attempt_terms(settings, timings, self._clock)
        self._courier.rules = retry_rules(settings)
        self._courier.budget.floor = settings.retry.budget_floor
        self._courier.budget.share = settings.retry.budget
        self._corridor.limits = corridor_limits(settings)
        if key_terms(settings) != key_terms(before):
            self._corridor.keys = key_reader(settings)
        self._body_memory.most = settings.max_buffered_bytes
        if self._admin_api is not None:
            self._admin_api.reconfigure(settings.admin)
        self.fleet.limit_each(settings.admission.max_outstanding_per_replica)
        self._roster.apply(settings.replicas)
        self._admission.reconfigure(policy_plan(settings), QueueRules.of(settings.admission))

    def _replica_changed(self, replica: Replica) -> None:
        """Its key may be another one, and which models it serves may have to be asked."""
        if self._upstream is not None and self._prober is not None:
            self._upstream.removed(replica)
            self._prober.soon(replica)

    @property
    def _busy(self) -> bool:
        """Whether some request has no answer yet, or its client has not taken all of it."""
        return bool(self.ledger.in_flight or (self._front is not None and self._front.unwritten))

    async def stop(self) -> None:
        """Close everything now; requests in flight are cut."""
        await self._tasks.close()
        for loop in (self._prober, self._scraper):
            if loop is not None:
                await loop.stop()
        if self._entrance is not None:
            await self._entrance.close()
        if self._front is not None:
            await self._cut()
            for connection in self._front.connections:
                connection.force_close()
            await self._front.shutdown(1.0)
        if self._admin is not None:
            await self._admin.close()
        if self._upstream is not None:
            await self._upstream.close()
        for session in self._sessions:
            await session.close()
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close, SPANS_FLUSH)

    async def _cut(self) -> None:
        """Tell the clients whose requests still run that they are cut, rather than just leaving them."""
        for exchange in self.ledger.oldest_first():
            exchange.interrupt(
                Draining("The router was stopped before this request was answered; send it again.")
            )
        for _ in range(TURNS_TO_TELL):
            await asyncio.sleep(0)

    def _open_upstream(self) -> Upstream:
        limits = self.settings.connector
        slots = Slots(
            limit=limits.limit,
            limit_per_replica=limits.limit_per_replica,
            timeout=self.settings.admission.queue_timeout,
            ledger=self.ledger,
            clock=self._clock,
        )
        connector = Connector(
            limit=limits.limit,
            # The slots know replicas; the connector knows addresses, which replicas may share.
            limit_per_host=0,
            keepalive_timeout=limits.keepalive,
            ssl=self._replica_tls.context,
            descriptors=self._descriptors,
        )
        timeout = self.settings.timeouts.connect
        return Upstream(connector, slots, self.ledger, connect_timeout=timeout)

    def _build_corridor(self, upstream: Upstream, prober: Prober, scraper: Scraper) -> Corridor:
        settings = self.settings
        self._admission = admission = Admission(
            self.ledger,
            self._desks,
            rules=QueueRules.of(settings.admission),
            clock=self._clock,
            random=Random(),
            idle=self.fleet.idle,
        )
        departed = Departed(self.ledger, self.metrics)
        self.fleet.listeners += [admission, prober, scraper, upstream, departed, self._roster]
        roads = Roads(
            ledger=self.ledger,
            admission=admission,
            upstream=upstream,
            health=self.health,
            refused=prober.soon,
        )
        retry = settings.retry
        budget = RetryBudget(retry.budget_floor, retry.budget)
        self._courier = Courier(
            roads,
            attempt_terms(settings, FirstContents(self.metrics, admission), self._clock),
            retry_rules(settings),
            budget,
        )
        rooms = Rooms(
            fleet=self.fleet,
            ledger=self.ledger,
            admission=admission,
            courier=self._courier,
            intake=Intake(self._body_memory, self._clock),
            endpoints=Endpoints(settings.extra_paths),
            local=self._answers.find,
            reception=self.reception,
            register=Register(self.ledger, self._observe, self._clock, self._tracing),
            aliases=self._aliases,
            owners=Owners(),
        )
        return Corridor(rooms, corridor_limits(settings), key_reader(settings), self._clock)

    async def _tick(self) -> None:
        self.health.tick(self._clock())

    def _observe(self, exchange: Exchange) -> None:
        for tell in self._observers:
            tell(exchange)

    async def _listen(self, corridor: Corridor) -> None:
        settings = self.settings
        self._front = FrontServer(
            corridor.handle,
            corridor.refuse,
            head_timeout=settings.timeouts.client_head,
            write_timeout=settings.timeouts.client_write,
            options=parser_options(settings),
        )
        context = self._client_tls.context
        self._entrance = Entrance(
            self._front,
            self._descriptors,
            tls=context,
            handshake=handshake_limit(settings) if context is not None else None,
        )
        await self._entrance.open(settings.host, settings.port)

    async def _open_admin(self) -> None:
        settings = self.settings.admin
        if not settings.port:
            return
        self._admin_api = AdminApi(
            settings,
            self.sources,
            self._answers,
            self._decisions,
            self._recent,
            own_ports=lambda: (self.port, self.admin_port),
        )
        self._admin = AdminPort(self._admin_api.application())
        await self._admin.open(settings.host, settings.port)
