"""The composition root: builds every room, starts and stops them. Nobody else constructs."""

import asyncio
import logging
import time
from random import Random

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from replicarouter import __version__
from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi
from replicarouter.admission.controller import Admission, QueueLimits
from replicarouter.clock import Clock
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.probe import Prober
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.scrape import Scraper
from replicarouter.policies import POLICIES
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.proxy.aiohttp_internals import Connector, FrontServer
from replicarouter.proxy.attempt import Terms
from replicarouter.proxy.handler import Corridor, Limits, Rooms
from replicarouter.proxy.slots import Slots
from replicarouter.proxy.upstream import Upstream
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet
from replicarouter.telemetry.access_log import log_exchange
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.lag import LoopLag
from replicarouter.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

BACKLOG = 4096
DRAIN_POLL = 0.02
LINGER = 2.0
"""Seconds an unread request body is read on after an early answer, so that the answer arrives."""

READ_BUFFER = 262144
"""Bytes of a request body that may wait unread before its client is told to slow down."""


class Router:
    """One router in one process. Use it on a running loop: `start`, then `stop`."""

    def __init__(self, settings: Settings, *, clock: Clock = time.monotonic) -> None:
        self.settings = settings
        self.ledger = Ledger()
        most = settings.admission.max_outstanding_per_replica
        self.fleet = Fleet(settings.replicas, self.ledger, most=most)
        self.metrics = Metrics(settings.policy)
        self._clock = clock
        self._lag = LoopLag(clock)
        self.sources = Sources(
            fleet=self.fleet,
            ledger=self.ledger,
            metrics=self.metrics,
            clock=clock,
            lag=lambda: self._lag.seconds,
            version=__version__,
            connector_limit=settings.connector.limit,
            scrape_interval=settings.scrape.interval,
        )
        registry = CollectorRegistry()
        registry.register(RouterCollector(self.sources))
        self._answers = OwnAnswers(self.fleet, registry, version=__version__, draining=lambda: self.draining)
        self.draining = False
        self._tasks = TaskSet()
        self._corridor: Corridor | None = None
        self._front: FrontServer | None = None
        self._listener: asyncio.Server | None = None
        self._upstream: Upstream | None = None
        self._sessions: tuple[aiohttp.ClientSession, ...] = ()
        self._prober: Prober | None = None
        self._scraper: Scraper | None = None
        self._admin: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port clients connect to."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def admin_port(self) -> int:
        """The operator's port, 0 when there is none."""
        return int(self._admin.addresses[0][1]) if self._admin is not None else 0

    async def start(self) -> None:
        """Probe every replica once, then listen. Raises `OSError` when a port is taken."""
        settings = self.settings
        # A probe has to find out whether the port still takes connections, so it never reuses one.
        probing = _session(aiohttp.TCPConnector(limit=0, force_close=True))
        scraping = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=settings.connector.keepalive))
        self._sessions = (probing, scraping)
        self._prober = Prober(self.fleet, probing, settings.health)
        self._scraper = Scraper(self.fleet, scraping, settings.scrape, self._clock)
        self._upstream = self._open_upstream()
        self._corridor = self._build_corridor(self._upstream, self._prober)
        try:
            await self._prober.probe_all()
            await self._listen(self._corridor)
            await self._open_admin()
        except BaseException:
            await self.stop()
            raise
        self._prober.start()
        self._scraper.start()
        self._tasks.start(self._lag.watch(), "event loop lag")

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
        if self._listener is not None:
            self._listener.close()
        if self._front is not None:
            for connection in self._front.connections:
                connection.force_close()
            await self._front.shutdown(1.0)
        if self._admin is not None:
            await self._admin.cleanup()
        if self._upstream is not None:
            await self._upstream.close()
        for session in self._sessions:
            await session.close()

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
        )
        timeout = self.settings.timeouts.connect
        return Upstream(connector, slots, self.ledger, connect_timeout=timeout)

    def _build_corridor(self, upstream: Upstream, prober: Prober) -> Corridor:
        settings = self.settings
        admission = Admission(
            self.ledger,
            POLICIES[settings.policy],
            limits=QueueLimits(settings.admission.max_queued, settings.admission.queue_timeout),
            clock=self._clock,
            random=Random(),
        )
        self.fleet.on_ready = admission.room_at
        rooms = Rooms(
            fleet=self.fleet,
            ledger=self.ledger,
            admission=admission,
            upstream=upstream,
            endpoints=Endpoints(settings.extra_paths),
            local=self._answers.find,
            observe=self._observe,
            refused=prober.soon,
        )
        terms = Terms(
            clock=self._clock,
            timings=self.metrics,
            response_head=settings.timeouts.response_head,
            idle=settings.timeouts.idle,
            expose_replica=settings.expose_replica,
        )
        limits = Limits(
            body_bytes=settings.max_body_bytes,
            body_gap=settings.timeouts.client_body,
            total=settings.timeouts.total,
            attempts=settings.retry.max_attempts,
        )
        return Corridor(rooms, terms, limits)

    def _observe(self, exchange: Exchange) -> None:
        self.metrics.observe(exchange)
        log_exchange(exchange)

    async def _listen(self, corridor: Corridor) -> None:
        settings = self.settings
        self._front = FrontServer(
            corridor.handle,
            corridor.refuse,
            head_timeout=settings.timeouts.client_head,
            write_timeout=settings.timeouts.client_write,
            options={
                "keepalive_timeout": settings.timeouts.client_keepalive,
                "lingering_time": LINGER,
                "max_line_size": settings.max_header_bytes,
                "max_field_size": settings.max_header_bytes,
                "max_headers": settings.max_headers,
                "read_bufsize": READ_BUFFER,
            },
        )
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._front, settings.host, settings.port, backlog=BACKLOG)

    async def _open_admin(self) -> None:
        settings = self.settings.admin
        if not settings.port:
            return
        application = AdminApi(settings, self.sources, self._answers).application()
        self._admin = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self._admin.setup()
        await web.TCPSite(self._admin, settings.host, settings.port).start()


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    """A client for probes or scrapes, outside the connector that requests use."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
