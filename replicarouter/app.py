"""The composition root of a router in one process: builds every room, starts and stops them."""

import asyncio
import time

from prometheus_client import ProcessCollector

from replicarouter import __version__
from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi, Records
from replicarouter.admin.port import AdminPort
from replicarouter.admin.requests import OwnRequests
from replicarouter.clock import Clock
from replicarouter.fleet.health import Health
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import FILE, Replica
from replicarouter.fleet.work import OwnFloor
from replicarouter.plane import Plane, Surroundings
from replicarouter.proxy.reception import Reception
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet
from replicarouter.telemetry import logs
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.exposition import Exposition
from replicarouter.telemetry.lag import LoopLag
from replicarouter.telemetry.metrics import Metrics
from replicarouter.warden import Warden

DRAIN_POLL = 0.02


class Router:
    """One router in one process. Use it on a running loop: `start`, then `stop`."""

    def __init__(self, settings: Settings, *, origin: str = FILE, clock: Clock = time.monotonic) -> None:
        self.settings = settings
        self.ledger = Ledger()
        most = settings.admission.max_outstanding_per_replica
        self.fleet = Fleet(settings.replicas, self.ledger, most=most, origin=origin)
        self.metrics = Metrics()
        self._clock = clock
        self._aliases = dict(settings.aliases)
        self.warden = Warden(settings, self.fleet, clock, changed=self._forget_connections)
        self._answers = OwnAnswers(
            self.fleet,
            self._page,
            version=__version__,
            draining=lambda: self.draining,
            exposing=lambda: self.settings.expose_replica,
            aliases=self._aliases,
        )
        self._plane = Plane(settings, self._surroundings())
        self._lag = LoopLag(clock)
        self.sources = self._open_sources(clock)
        self._exposition = Exposition(RouterCollector(self.sources).families)
        self.draining = False
        self.reloaded = True
        self._tasks = TaskSet()
        self._admin: AdminPort | None = None
        self._admin_api: AdminApi | None = None

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            fleet=self.fleet,
            ledger=self.ledger,
            metrics=self.metrics,
            verdicts=self.warden.health,
            refused=self.warden.refused,
            idle=self.fleet.idle,
            local=self._answers.find,
            aliases=self._aliases,
            clock=self._clock,
        )

    def _open_sources(self, clock: Clock) -> Sources:
        """What metrics and reports are read from."""
        return Sources(
            fleet=self.fleet,
            ledger=self.ledger,
            metrics=self.metrics,
            works=OwnFloor(self.fleet, 0.0).works,
            clock=clock,
            lag=lambda: self._lag.seconds,
            version=__version__,
            connector=self.settings.connector,
            scrape_interval=self.settings.scrape.interval,
            admission=lambda: self.settings.admission,
            policy_of=self._plane.desks.policy_of,
            clients=lambda: self._plane.clients,
            process=ProcessCollector("replicarouter", registry=None).collect,
            wall=time.time,
            reloaded=lambda: self.reloaded,
            memories=self._plane.desks.remembered,
            traces_dropped=lambda: self._plane.traces_dropped,
        )

    @property
    def health(self) -> Health:
        """Who judges the replicas by their requests."""
        return self.warden.health

    @property
    def reception(self) -> Reception:
        """Who may come in."""
        return self._plane.reception

    @property
    def port(self) -> int:
        """The port clients connect to, 0 before it is open."""
        return self._plane.port

    @property
    def admin_port(self) -> int:
        """The operator's port, 0 when there is none."""
        return self._admin.port if self._admin is not None else 0

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self.ledger.in_flight)

    async def start(self) -> None:
        """Probe every replica once, then listen. Raises `CannotListen`, as when a port is taken."""
        admission, *others = self._plane.open()
        self.fleet.listeners.append(admission)
        self.warden.open(self._plane.replica_tls.context)
        self.fleet.listeners += others
        try:
            await self.warden.first_look()
            # The operator's door first: who finds the other open finds this one too.
            await self._open_admin()
            await self._plane.listen()
        except BaseException:
            await self.stop()
            raise
        self.warden.start()
        self._tasks.start(self._lag.watch(), "event loop lag")

    async def drain(self, *, delay: float, limit: float) -> bool:
        """Say not ready at once, refuse new requests after `delay` seconds, wait for those in flight.

        False when some still ran after `limit` more seconds (0: no bound).
        """
        self.draining = True
        await asyncio.sleep(delay)
        self._plane.refuse_new()
        end = self._clock() + limit
        while self._plane.busy and (not limit or self._clock() < end):
            await asyncio.sleep(DRAIN_POLL)
        return not self._plane.busy

    def apply(self, settings: Settings) -> None:
        """Go on by other settings; raises `SettingsError` before anything has changed.

        What is built into listeners and connectors stays as it is: `reload.fixed` says what.
        """
        reception = self._plane.check(settings)
        self.settings = settings
        logs.set_level(settings.log.level)
        self._plane.apply(settings, reception)
        if self._admin_api is not None:
            self._admin_api.reconfigure(settings.admin)
        self.warden.apply(settings)
        self._plane.replan(settings)

    async def stop(self) -> None:
        """Close everything now; requests in flight are cut."""
        await self._tasks.close()
        await self.warden.close()
        await self._plane.close()
        if self._admin is not None:
            await self._admin.close()

    def _forget_connections(self, replica: Replica) -> None:
        self._plane.forget_connections(replica)

    def _page(self) -> bytes:
        return self._exposition.page()

    async def _open_admin(self) -> None:
        settings = self.settings.admin
        if not settings.port:
            return
        self._admin_api = AdminApi(
            settings,
            self.sources,
            self._answers,
            Records(self._plane.decisions, self._plane.recent, OwnRequests(self.ledger, self._clock)),
            own_ports=lambda: (self.port, self.admin_port),
        )
        self._admin = AdminPort(self._admin_api.application())
        await self._admin.open(settings.host, settings.port)
