"""Reads the engines' own counts from their `/metrics`, each `scrape.interval`."""

import asyncio
import logging

import aiohttp

from replicarouter.clock import Clock
from replicarouter.engines import DIALECTS, PARSER, detect
from replicarouter.fleet.fetch import read_whole
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ScrapeSettings
from replicarouter.tasks import TaskSet, every

log = logging.getLogger(__name__)

MAX_PAGE = 16 * 1024 * 1024
"""Most bytes of a metrics page that are read."""


class Scraper:
    """Takes a reading of every replica each interval. A replica without a page simply has none."""

    def __init__(
        self, fleet: Fleet, session: aiohttp.ClientSession, settings: ScrapeSettings, clock: Clock
    ) -> None:
        self._fleet = fleet
        self._session = session
        self._settings = settings
        self._clock = clock
        self._tasks = TaskSet()

    def start(self) -> None:
        """Go on scraping in the background."""
        for replica in self._fleet:
            self._watch(replica)

    async def stop(self) -> None:
        """Stop scraping."""
        await self._tasks.close()

    async def scrape(self, replica: Replica) -> None:
        """Take one reading; a page that cannot be had leaves the last one to grow old."""
        url = f"{replica.settings.url.rstrip('/')}/metrics"
        try:
            async with asyncio.timeout(max(self._settings.interval, 1.0)):
                async with self._session.get(url, allow_redirects=False) as answer:
                    if answer.status != 200:
                        return
                    page = await read_whole(answer, MAX_PAGE)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            log.debug("no reading", extra={"replica": replica.name, "error": type(error).__name__})
            return
        samples = PARSER.parse(page)
        configured = replica.settings.engine
        dialect = detect(samples) if configured == "auto" else DIALECTS[configured]
        replica.engine = dialect.name
        replica.take(dialect.read(samples), self._clock())

    def _watch(self, replica: Replica) -> None:
        async def turn() -> None:
            await self.scrape(replica)

        name = f"scrape {replica.name}"
        self._tasks.start(every(self._settings.interval, turn, name), name)
