"""Simulated engines under real load behind a router, and what `replicarouter diagnose` says of it."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from replicarouter.loadgen.users import Users
from replicarouter.loadgen.workload import Workload
from replicarouter.simulator import EngineOptions, SimulatedEngine, start_engines
from tests.fakes.client import HOST
from tests.fakes.running import Doors, Ledger, RunningRouter
from tests.fakes.wire import eventually

COMMAND = (sys.executable, "-m", "replicarouter", "diagnose")
MODEL = "sim"
SPEED = 0.25
"""Of the simulated engines: a step takes a twentieth of a second and more, so that hundreds of streams cost
little."""

REACHES = 10.0
"""Seconds within which a load takes hold."""

STARVED = frozenset({"router_cpu", "readings_missing"})
"""Verdicts on a router that gets too little of the processor."""

ENDS = 30.0
"""Seconds within which the command ends."""


@asynccontextmanager
async def engines(count: int, **options: Any) -> AsyncIterator[list[SimulatedEngine]]:
    """Engines of the same kind, gone afterwards."""
    started = await start_engines(EngineOptions(**{"speed": SPEED, **options}), count)
    try:
        yield started
    finally:
        await asyncio.gather(*(engine.stop() for engine in started))


@asynccontextmanager
async def different_engines(*each: dict[str, Any]) -> AsyncIterator[list[SimulatedEngine]]:
    """An engine for each of these options, gone afterwards."""
    started = [
        SimulatedEngine(EngineOptions(**{"speed": SPEED, "phase": number / len(each), **options}))
        for number, options in enumerate(each)
    ]
    await asyncio.gather(*(engine.start() for engine in started))
    try:
        yield started
    finally:
        await asyncio.gather(*(engine.stop() for engine in started))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats(Workload):
    """Streamed chats; `fields` are set in every request. With `sessions` each user goes through so many of
    its own, a request each."""

    model: str = MODEL
    sessions: int = 0
    fields: dict[str, Any] = field(default_factory=dict)

    def bodies(self, user: int) -> Iterator[dict[str, Any]]:
        """The requests of one user, without end."""
        for number, body in enumerate(Workload.bodies(self, user)):
            named = {"user": f"{user}-{number % self.sessions}"} if self.sessions else {}
            yield {**body, **named, **self.fields}


@asynccontextmanager
async def users(port: int, count: int, **chats: Any) -> AsyncIterator[Users]:
    """So many users who ask one question of `Chats` after the other; their connections are cut afterwards."""
    crowd = Users(HOST, port, count=count, workload=Chats(**chats), clock=time.monotonic)
    crowd.start()
    try:
        yield crowd
    finally:
        await crowd.stop()


@asynccontextmanager
async def at_work(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These go on, without an end of their own, until they are cancelled afterwards."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended


async def finished(crowd: Users, answers: int) -> None:
    """Wait until they have so many more answers, and none has failed."""
    wanted = crowd.tally.answered + answers
    await eventually(lambda: crowd.tally.answered >= wanted, f"{wanted} answers", deadline=REACHES)
    assert not crowd.tally.failures


async def reached(router: Doors, **least: int) -> Ledger:
    """Wait until the ledger shows at least so many in these stages, or in this state over all engines."""
    seen: Ledger | None = None

    async def there() -> bool:
        nonlocal seen
        seen = await router.ledger()
        return all(_count(seen, place) >= count for place, count in least.items())

    await eventually(there, f"the ledger shows {least}", deadline=REACHES)
    assert seen is not None
    return seen


def _count(ledger: Ledger, place: str) -> float:
    if place in ledger.document:
        return float(ledger[place] or 0)
    return sum(row[place] or 0 for row in ledger["replicas"])


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the command said: its exit status and its verdicts, most important first."""

    status: int
    verdicts: list[dict[str, Any]]
    document: dict[str, Any]

    @property
    def codes(self) -> list[str]:
        """The codes of the verdicts."""
        return [verdict["code"] for verdict in self.verdicts]

    def verdict(self, code: str) -> dict[str, Any]:
        """The verdict with this code; there must be one."""
        found = [verdict for verdict in self.verdicts if verdict["code"] == code]
        assert found, f"no {code}: {self}"
        return found[0]

    def first(self, code: str, status: int) -> dict[str, Any]:
        """Assert that this is the first verdict, and the exit status; the verdict."""
        assert (self.codes[:1], self.status) == ([code], status), self
        return self.verdicts[0]

    def __str__(self) -> str:
        lines = [f"status {self.status}"]
        lines += [f"{v['code']} ({v['side']}): {v['title']}: {v['evidence']}" for v in self.verdicts]
        return "\n".join(lines)


async def diagnose(router: Doors, *flags: str, seconds: float = 1.0, again: int = 2) -> Diagnosis:
    """Run the command as a process of its own. Of a router that shares this process with its engines and
    users it is asked `again` when it says, and rightly so, that the machine is too busy otherwise."""
    diagnosis = await _diagnose(router, *flags, "--for", f"{seconds:g}")
    while again and isinstance(router, RunningRouter) and STARVED.intersection(diagnosis.codes):
        again -= 1
        diagnosis = await _diagnose(router, *flags, "--for", f"{seconds:g}")
    return diagnosis


async def _diagnose(router: Doors, *flags: str) -> Diagnosis:
    url = f"http://{HOST}:{router.port}"
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--router", url, "--json", *flags, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(ENDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode in (0, 3, 4), errors.decode()
    assert not errors, errors.decode()
    document = json.loads(output)
    return Diagnosis(process.returncode or 0, document["verdicts"], document)


def numbers(verdict: dict[str, Any]) -> str:
    """Evidence and cure of a verdict in one text."""
    return " ".join([*verdict["evidence"], verdict["cure"]])
