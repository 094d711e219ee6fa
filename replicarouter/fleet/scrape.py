"""Reads the engines' own counts from their `/metrics`, each `scrape.interval`."""

import asyncio
import logging

import aiohttp

from replicarouter.clock import Clock
from replicarouter.engines import DIALECTS, PARSER, Samples, detect
from replicarouter.engines.exposition import PIECE
from replicarouter.fleet.fetch import OK, Client, Place
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.watches import Watches
from replicarouter.settings import ScrapeSettings

log = logging.getLogger(__name__)

MAX_PAGE = 16 * 1024 * 1024
"""Most bytes of a metrics page that are read."""


class Scraper(FleetListener):
    """Takes a reading of every replica each interval. A replica without a page simply has none."""

    def __init__(self, fleet: Fleet, client: Client, settings: ScrapeSettings, clock: Clock) -> None:
        self._fleet = fleet
        self._client = client
        self._settings = settings
        self._clock = clock
        self._watches = Watches(self.scrape, settings.interval, "scrape")
        self._places: dict[Replica, Place] = {}

    def start(self) -> None:
        """Go on scraping in the background, whoever is in the fleet."""
        self._watches.start(self._fleet.replicas)

    async def stop(self) -> None:
        """Stop scraping."""
        await self._watches.stop()

    def added(self, replica: Replica) -> None:
        """Take readings of a new replica too."""
        self._watches.add(replica)

    def removed(self, replica: Replica) -> None:
        """Take no more readings of it."""
        self._watches.remove(replica)
        self._places.pop(replica, None)

    async def scrape(self, replica: Replica) -> None:
        """Take one reading; a page that cannot be had leaves the last one to grow old."""
        if self._fleet.leaves_alone(replica, self._clock()):
            return
        try:
            async with asyncio.timeout(max(self._settings.interval, 1.0)):
                with self._client.visit(self._place(replica)) as visit:
                    answer = await visit.ask("/metrics", most=MAX_PAGE)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            log.debug("no reading", extra={"replica": replica.name, "error": type(error).__name__})
            return
        if answer.status != OK:
            return
        samples: Samples = {}
        left = len(answer.body)
        for samples in PARSER.steps(answer.body):  # noqa: B007
            left -= PIECE
            if left > 0:
                # Streams go on between two steps.
                await asyncio.sleep(0)
        configured = replica.settings.engine
        dialect = detect(samples) if configured == "auto" else DIALECTS[configured]
        replica.engine = dialect.name
        before = replica.restarts
        replica.take(dialect.read(samples), self._clock())
        if replica.restarts > before:
            facts = {"replica": replica.name, "restarts": replica.restarts}
            log.warning("engine restarted", extra=facts)

    def _place(self, replica: Replica) -> Place:
        place = self._places.get(replica)
        if place is None:
            place = self._places[replica] = self._client.place(replica.settings.url)
        return place
