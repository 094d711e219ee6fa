"""Active health checks: asks each replica whether it is healthy and which models it serves."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import aiohttp
import orjson

from replicarouter.fleet.fetch import read_whole
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import HealthSettings
from replicarouter.tasks import TaskSet, every

log = logging.getLogger(__name__)

MAX_VERSION = 4096
"""Most bytes of a version document that are read."""

MAX_ANSWER = 4 * 1024 * 1024
"""Most bytes of a model list that are read."""


class Prober:
    """Probes every replica each `health.interval`, and at once when told that one refused a request."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, settings: HealthSettings) -> None:
        self._fleet = fleet
        self._session = session
        self._settings = settings
        self._failed: dict[Replica, int] = {}
        self._passed: dict[Replica, int] = {}
        self._running: set[Replica] = set()
        self._versions_asked: set[Replica] = set()
        self._tasks = TaskSet()

    async def probe_all(self) -> None:
        """One round over the fleet, all replicas at once."""
        await asyncio.gather(*(self.probe(replica) for replica in self._fleet))

    def start(self) -> None:
        """Go on probing in the background, evenly spread over an interval."""
        replicas = self._fleet.replicas
        for turn, replica in enumerate(replicas):
            self._watch(replica, self._settings.interval * (turn + 1) / len(replicas))

    def soon(self, replica: Replica) -> None:
        """Probe now, not at the next turn: a request to this replica was refused."""
        if replica not in self._running:
            self._tasks.start(self.probe(replica), f"probe {replica.name} now")

    async def stop(self) -> None:
        """Stop probing."""
        await self._tasks.close()

    async def probe(self, replica: Replica) -> None:
        """Ask once, and move the replica by what it says and how often it said so."""
        if replica in self._running:
            return
        self._running.add(replica)
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._ask(replica)
        except (aiohttp.ClientConnectorError, ConnectionRefusedError):
            self._fail(replica, "refuses connections", at_once=True)
        except TimeoutError:
            self._fail(replica, f"does not answer within {self._settings.timeout:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._fail(replica, f"connection fails ({type(error).__name__})")
        finally:
            self._running.discard(replica)
        if replica.state is State.READY:
            await self._ask_version(replica)

    def _watch(self, replica: Replica, delay: float) -> None:
        async def turn() -> None:
            await self.probe(replica)

        name = f"probe {replica.name}"
        self._tasks.start(every(self._settings.interval, turn, name, delay=delay), name)

    async def _ask(self, replica: Replica) -> None:
        url = replica.settings.url.rstrip("/")
        async with self._session.get(f"{url}/health", allow_redirects=False) as answer:
            if answer.status != 200:
                self._fail(replica, f"/health answers {answer.status}")
                return
        if replica.settings.models:
            self._pass(replica)
            return
        async with self._session.get(
            f"{url}/v1/models", allow_redirects=False, headers=_credentials(replica)
        ) as answer:
            if answer.status != 200:
                self._fail(replica, f"/v1/models answers {answer.status}")
                return
            cards = _cards(await read_whole(answer, MAX_ANSWER))
        if cards is None:
            self._fail(replica, "/v1/models answers something else than a model list")
        elif not cards:
            self._fleet.tell(replica, Event.LISTS_NOTHING, "lists no model yet")
        else:
            self._fleet.list_models(replica, cards)
            self._pass(replica)

    async def _ask_version(self, replica: Replica) -> None:
        """Ask what runs there, once for each time it comes up; an engine need not say."""
        if replica in self._versions_asked:
            return
        self._versions_asked.add(replica)
        url = f"{replica.settings.url.rstrip('/')}/version"
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._settings.timeout):
                async with self._session.get(url, allow_redirects=False) as answer:
                    if answer.status == 200:
                        replica.engine_version = _version(await read_whole(answer, MAX_VERSION))

    def _pass(self, replica: Replica) -> None:
        self._failed[replica] = 0
        passed = self._passed[replica] = self._passed.get(replica, 0) + 1
        if replica.state is State.READY or passed >= self._settings.healthy_after:
            self._fleet.tell(replica, Event.PASSED, "probes pass")
        else:
            replica.why = f"{passed} of {self._settings.healthy_after} probes passed"

    def _fail(self, replica: Replica, why: str, *, at_once: bool = False) -> None:
        self._passed[replica] = 0
        self._versions_asked.discard(replica)
        failed = self._failed[replica] = self._failed.get(replica, 0) + 1
        if at_once or replica.state is not State.READY or failed >= self._settings.unhealthy_after:
            self._fleet.tell(replica, Event.FAILED, why)
        else:
            replica.why = f"{why} ({failed} of {self._settings.unhealthy_after} times)"


def _version(document: bytes) -> str:
    """The version in a version document; empty when it holds none."""
    try:
        version = orjson.loads(document)["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return version[:64] if isinstance(version, str) else ""


def _credentials(replica: Replica) -> dict[str, str]:
    key = replica.settings.api_key
    return {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}


def _cards(document: bytes) -> list[dict[str, Any]] | None:
    """The model cards of a list document; None when it is something else."""
    try:
        listed = orjson.loads(document)["data"]
        cards = [card for card in listed if isinstance(card["id"], str)]
    except (ValueError, KeyError, TypeError):
        return None
    return cards
