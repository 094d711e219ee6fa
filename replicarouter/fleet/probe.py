"""Active health checks: asks each replica whether it is healthy and which models it serves."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from replicarouter.clock import Clock
from replicarouter.fleet.fetch import OK, Client, Place
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.watches import Watches
from replicarouter.settings import HealthSettings
from replicarouter.tasks import TaskSet
from replicarouter.tls import tls_failure

log = logging.getLogger(__name__)

MAX_VERSION = 4096
"""Most bytes of a version document that are read."""

MAX_ANSWER = 4 * 1024 * 1024
"""Most bytes of a model list that are read."""


@dataclass(slots=True)
class Tally:
    """How often in a row the probes of one replica passed or failed. `refused`: its port was closed since
    they last passed; `version_asked`: in this life of its engine."""

    passed: int = 0
    failed: int = 0
    refused: bool = False
    version_asked: bool = False


class Prober(FleetListener):
    """Probes every replica each `health.interval`, and at once when told that one refused a request.

    Bytes of a response count as passed probes: an engine at work may answer late or not at all.
    """

    def __init__(self, fleet: Fleet, client: Client, settings: HealthSettings, clock: Clock) -> None:
        self._fleet = fleet
        self._client = client
        self._settings = settings
        self._clock = clock
        self._tallies: dict[Replica, Tally] = {}
        self._places: dict[Replica, Place] = {}
        self._running: set[Replica] = set()
        self._watches = Watches(self.probe, settings.interval, "probe")
        self._tasks = TaskSet()

    async def probe_all(self) -> None:
        """One round over the fleet, all replicas at once."""
        await asyncio.gather(*(self.probe(replica) for replica in self._fleet))

    def start(self) -> None:
        """Go on probing in the background, evenly spread over an interval."""
        self._watches.start(self._fleet.replicas, spread=True)

    def soon(self, replica: Replica) -> None:
        """Probe now, not at the next turn: a request to this replica was refused."""
        if replica in self._fleet and replica not in self._running:
            self._tasks.start(self.probe(replica), f"probe {replica.name} now")

    async def stop(self) -> None:
        """Stop probing."""
        await self._watches.stop()
        await self._tasks.close()

    def added(self, replica: Replica) -> None:
        """Probe a new replica, at once for the first time."""
        self._watches.add(replica)

    def removed(self, replica: Replica) -> None:
        """Probe it no more, and forget it."""
        self._watches.remove(replica)
        self._tallies.pop(replica, None)
        self._places.pop(replica, None)

    async def probe(self, replica: Replica) -> None:
        """Ask once, and move the replica by what it says and how often it said so."""
        began = self._clock()
        if replica in self._running or replica not in self._fleet or self._fleet.leaves_alone(replica, began):
            return
        self._running.add(replica)
        try:
            async with asyncio.timeout(self._settings.timeout):
                complaint = await self._ask(replica)
            if complaint:
                self._fail(replica, began, complaint)
        except TimeoutError:
            if self._delivers(replica, began) and not self._tally(replica).refused:
                self._pass(replica)
            else:
                self._fail(replica, began, f"does not answer within {self._settings.timeout:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if _refused(error):
                self._refuse(replica)
            else:
                self._fail(replica, began, _failure(error))
        finally:
            self._running.discard(replica)
        if replica.health is State.READY:
            await self._ask_version(replica)

    async def _ask(self, replica: Replica) -> str:
        """Ask for health and models, and say what is wrong, or nothing."""
        with self._client.visit(self._place(replica)) as visit:
            health = await visit.ask("/health")
            if health.status != OK:
                return f"/health answers {health.status}"
            if replica.settings.models:
                self._pass(replica)
                return ""
            answer = await visit.ask("/v1/models", most=MAX_ANSWER, key=_key(replica))
        if answer.status != OK:
            return f"/v1/models answers {answer.status}"
        cards = _cards(answer.body)
        if cards is None:
            return "/v1/models answers something else than a model list"
        if cards:
            self._fleet.list_models(replica, cards)
            self._pass(replica)
        else:
            self._fleet.tell(replica, Event.LISTS_NOTHING, "lists no model yet")
        return ""

    async def _ask_version(self, replica: Replica) -> None:
        """Ask what runs there, once for each time it comes up; an engine need not say."""
        tally = self._tally(replica)
        if tally.version_asked:
            return
        tally.version_asked = True
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._settings.timeout):
                with self._client.visit(self._place(replica)) as visit:
                    answer = await visit.ask("/version", most=MAX_VERSION)
            if answer.status == OK:
                replica.engine_version = _version(answer.body)

    def _place(self, replica: Replica) -> Place:
        place = self._places.get(replica)
        if place is None:
            place = self._places[replica] = self._client.place(replica.settings.url)
        return place

    def _tally(self, replica: Replica) -> Tally:
        if replica not in self._fleet:
            return Tally()
        return self._tallies.setdefault(replica, Tally())

    def _delivers(self, replica: Replica, began: float) -> bool:
        """Whether a response byte came since about the previous probe."""
        heard_at = max(replica.heard_at, self._fleet.ledger.last_byte_from(replica.name))
        return heard_at > 0 and heard_at >= began - self._settings.interval

    def _pass(self, replica: Replica) -> None:
        tally = self._tally(replica)
        tally.failed = 0
        tally.passed += 1
        replica.probe_failing = False
        if tally.refused:
            # Its port was closed and is open again: another life, in which it has not stalled.
            tally.refused = replica.stalled = False
            replica.reborn_at = self._clock()
        if replica.stalled or replica.health is State.EJECTED:
            return
        if replica.health is State.READY or tally.passed >= self._settings.healthy_after:
            why = "probes pass, and its requests are tried one at a time" if replica.trial else "probes pass"
            self._fleet.tell(replica, Event.PASSED, why)
        else:
            replica.why = f"{tally.passed} of {self._settings.healthy_after} probes passed"

    def _refuse(self, replica: Replica) -> None:
        """Nobody listens there: whatever still arrives on older connections, it takes no more requests."""
        tally = self._tally(replica)
        tally.refused = True
        self._count_failure(replica, tally)
        self._fleet.tell(replica, Event.FAILED, "refuses connections")

    def _fail(self, replica: Replica, began: float, why: str) -> None:
        if replica.health is State.READY and self._delivers(replica, began):
            replica.why = f"{why}, but its responses arrive"
            return
        tally = self._tally(replica)
        self._count_failure(replica, tally)
        if replica.stalled:
            return
        patient = replica.health in {State.READY, State.EJECTED}
        if not patient or tally.failed >= self._settings.unhealthy_after:
            self._fleet.tell(replica, Event.FAILED, why)
        elif replica.health is State.READY:
            replica.why = f"{why} ({tally.failed} of {self._settings.unhealthy_after} times)"

    def _count_failure(self, replica: Replica, tally: Tally) -> None:
        tally.passed = 0
        tally.failed += 1
        tally.version_asked = False
        replica.probe_failing = True


def _refused(error: BaseException) -> bool:
    """Whether the port is closed; a name that does not resolve or a network that is down is less sure."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return isinstance(error, ConnectionRefusedError)


def _failure(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientSSLError):
        return tls_failure(error)
    return f"connection fails ({type(error).__name__})"


def _version(document: bytes) -> str:
    """The version in a version document; empty when it holds none."""
    try:
        version = orjson.loads(document)["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return version[:64] if isinstance(version, str) else ""


def _key(replica: Replica) -> str:
    key = replica.settings.api_key
    return "" if key is None else key.get_secret_value()


def _cards(document: bytes) -> list[dict[str, Any]] | None:
    """The model cards of a list document; None when it is something else."""
    try:
        listed = orjson.loads(document)["data"]
        cards = [card for card in listed if isinstance(card["id"], str)]
    except (ValueError, KeyError, TypeError):
        return None
    return cards
