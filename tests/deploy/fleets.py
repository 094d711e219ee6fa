"""Two routers at work in front of simulated engines: one is well, the other is short of connections and has
replicas that fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from replicarouter.simulator import EngineOptions, SimulatedEngine
from replicarouter.tasks import TaskSet
from tests.fakes.client import Client, chat, request
from tests.fakes.served import Served
from tests.fakes.wire import PeerGone

WELL, TROUBLED = "well", "troubled"
KEY = "prometheus-may-read"
"""Of the router that is well: everybody who asks it, and who reads its metrics, must show one."""

ANSWERS = 15.0
"""Seconds within which a request is answered, whatever happens to it."""

SYSTEM = "You answer briefly, in plain words, and say so when you do not know. " * 8

ENGINES: tuple[dict[str, Any], ...] = (
    {"speculative_tokens": 2},
    {"speculative_tokens": 2},
    {"kv_blocks": 90, "max_model_len": 1024},
    {},
    {},
)
"""Two for the router that is well, then three for the other: the first of them is short of memory."""

FAULTS: tuple[tuple[int, dict[str, Any]], ...] = (
    (3, {"kind": "status", "status": 503, "reason": "busy", "share": 0.5}),
    (4, {"kind": "reset", "at": "start"}),
)
"""What is wrong with the other two."""

WELL_SETTINGS: dict[str, Any] = {
    "policy": "prefix-cache",
    "policy_options": {"shadow": "session"},
    "api_keys": {"users": "users", "prometheus": KEY},
}
TROUBLED_SETTINGS: dict[str, Any] = {
    "connector": {"limit": 4},
    "admission": {"queue_timeout": 0.6},
    "eject": {"consecutive_failures": 2, "base_seconds": 30},
}


@dataclass(frozen=True, slots=True)
class Fleets:
    """Both of them; `engine` is the port of one of the engines."""

    well: Served
    troubled: Served
    engine: int

    async def ready(self) -> None:
        """Wait until both serve with all their replicas."""
        await asyncio.gather(self.well.up(), self.troubled.up())
        await asyncio.gather(self.well.until_ready(2), self.troubled.until_ready(3))

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Users ask at both."""
        tasks = TaskSet()
        for number in range(6):
            tasks.start(_user(self.well.port, number), f"user {number}")
        for number in range(12):
            tasks.start(_user(self.troubled.port, number), f"troubled user {number}")
        tasks.start(_impatient(self.troubled.port), "impatient user")
        tasks.start(_clumsy(self.well.port), "clumsy user")
        try:
            yield
        finally:
            await tasks.close()


@asynccontextmanager
async def fleets(folder: Path) -> AsyncIterator[Fleets]:
    """Start engines and routers; they need not be ready yet."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(_engine(**options)) for options in ENGINES]
        for number, fault in FAULTS:
            await _inflict(engines[number], fault)
        urls = [engine.url for engine in engines]
        well = stack.enter_context(_router(folder / WELL, urls[:2], WELL_SETTINGS))
        troubled = stack.enter_context(_router(folder / TROUBLED, urls[2:], TROUBLED_SETTINGS))
        yield Fleets(well, troubled, engines[0].port)


@asynccontextmanager
async def _engine(**options: Any) -> AsyncIterator[SimulatedEngine]:
    engine = SimulatedEngine(EngineOptions(**options))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def _inflict(engine: SimulatedEngine, fault: dict[str, Any]) -> None:
    client = await Client.connect(engine.port)
    answer = await client.ask(request("POST", "/sim/fault", json.dumps(fault).encode()))
    assert answer.status == 200, answer.body.raw
    await client.closed()


@contextmanager
def _router(folder: Path, urls: list[str], settings: dict[str, Any]) -> Iterator[Served]:
    folder.mkdir()
    config = folder / "router.yaml"
    config.write_text(json.dumps({"replicas": urls, "health": {"interval": 0.2}, **settings}))
    router = Served(folder, (), ("--config", str(config), "--scrape-interval", "0.2", "--log-level", "error"))
    try:
        yield router
    finally:
        router.process.kill()
        router.process.wait()


# Those who ask


def _question(user: int, turn: int) -> bytes:
    """Of conversations that share a system message and go on; every other one thinks aloud."""
    turns = [
        {"role": "user", "content": f"Question {number} of user {user}."} for number in range(turn % 5 + 1)
    ]
    fields: dict[str, Any] = {"reasoning_effort": "low"} if user % 2 else {}
    return chat(
        model="sim",
        headers={"Authorization": "Bearer users", "X-Session-Id": f"session-{user}"},
        messages=[{"role": "system", "content": SYSTEM}, *turns],
        max_tokens=40,
        stream_options={"include_usage": True},
        **fields,
    )


async def _user(port: int, number: int) -> None:
    """One user, who asks one question after the other and does not mind how it ends."""
    for turn in count():
        async with _connection(port) as client:
            await client.ask(_question(number, turn), ANSWERS)


async def _impatient(port: int) -> None:
    """One who is gone after the first word."""
    for turn in count():
        async with _connection(port) as client:
            await client.send(_question(99, turn))
            await client.wire.read_until(b"\n", ANSWERS)


async def _clumsy(port: int) -> None:
    """One who asks for more than the engine has, and is told so by the engine: no alert is about him."""
    while True:
        async with _connection(port) as client:
            answer = await client.ask(
                chat(model="sim", headers={"Authorization": "Bearer users"}, max_tokens=10**9), ANSWERS
            )
            assert answer.status == 400, answer.body.raw
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _connection(port: int) -> AsyncIterator[Client]:
    client = await Client.connect(port)
    try:
        yield client
    except PeerGone:
        pass
    finally:
        await client.closed()
