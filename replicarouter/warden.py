"""Keeps the fleet: asks every replica how it is, judges it by its requests, and follows the settings."""

import ssl
from collections.abc import Callable

from replicarouter.clock import Clock
from replicarouter.fleet.fetch import Client
from replicarouter.fleet.health import TICK, Health
from replicarouter.fleet.one_step import OneStepConnector
from replicarouter.fleet.probe import Prober
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.scrape import Scraper
from replicarouter.fleet.work import Floor
from replicarouter.reload.roster import Roster
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet, every


class Warden:
    """Probes, scrapes and verdicts of one fleet. `floor` tells of the requests at work, where these are not
    in this process; `changed` hears of replicas that go on under other settings."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        clock: Clock,
        *,
        changed: Callable[[Replica], None],
        floor: Floor | None = None,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._clock = clock
        self._changed = changed
        self.health = Health(fleet, settings, clock, floor)
        self.roster = Roster(fleet, self._replica_changed)
        self._prober: Prober | None = None
        self._scraper: Scraper | None = None
        self._clients: tuple[Client, ...] = ()
        self._tasks = TaskSet()

    def open(self, trust: ssl.SSLContext | bool) -> None:
        """Make what asks the replicas; `trust` are the authorities believed of theirs. On the loop."""
        settings = self._settings
        # A probe has to find out whether the port still takes connections, so it never reuses one.
        probing = Client(OneStepConnector(limit=0, force_close=True, ssl=trust))
        # Until the next scrape and no longer: a replica that is removed is soon left alone.
        keepalive = min(settings.connector.keepalive, 2 * settings.scrape.interval)
        scraping = Client(OneStepConnector(limit=0, keepalive_timeout=keepalive, ssl=trust))
        self._clients = (probing, scraping)
        self._prober = Prober(self._fleet, probing, settings.health, self._clock)
        self._scraper = Scraper(self._fleet, scraping, settings.scrape, self._clock)
        self._fleet.listeners += [self._prober, self._scraper, self.roster]

    async def first_look(self) -> None:
        """Probe every replica once."""
        assert self._prober is not None
        await self._prober.probe_all()
        # First, so that what it says of a replica is known to all others; and only now, because those
        # that are ready when the router starts have nobody to stand in for them while they start slowly.
        self._fleet.listeners.insert(0, self.health)

    def start(self) -> None:
        """Go on looking in the background."""
        assert self._prober is not None
        assert self._scraper is not None
        self._prober.start()
        self._scraper.start()
        self._tasks.start(every(TICK, self._tick, "health"), "health")

    def refused(self, replica: Replica) -> None:
        """It took no connection, or said that it is loading: ask it now."""
        if self._prober is not None:
            self._prober.soon(replica)

    def apply(self, settings: Settings) -> None:
        """Bring the fleet in line with other settings."""
        self._settings = settings
        self._fleet.limit_each(settings.admission.max_outstanding_per_replica)
        self.roster.apply(settings.replicas)

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.close()
        for loop in (self._prober, self._scraper):
            if loop is not None:
                await loop.stop()
        for client in self._clients:
            await client.close()

    def _replica_changed(self, replica: Replica) -> None:
        """Its key may be another one, and which models it serves may have to be asked."""
        self._changed(replica)
        self.refused(replica)

    async def _tick(self) -> None:
        self.health.tick(self._clock())
