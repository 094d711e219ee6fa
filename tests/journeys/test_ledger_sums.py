"""Every request that was received and has not ended is in exactly one stage, whenever somebody looks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from replicarouter.simulator import SimulatedEngine
from tests.fakes.client import chat
from tests.fakes.load import MODEL, at_work, engines, users
from tests.fakes.running import STAGES, Metrics, RunningRouter, StartRouter
from tests.fakes.wire import eventually

REPLICAS, LOOKS = 4, 120
INTERVAL = 0.1
"""Seconds between scrapes of an engine."""

LIMITS: dict[str, Any] = {
    "admission": {"max_outstanding_per_replica": 5},
    "connector": {"limit": 16},
    "scrape": {"interval": INTERVAL},
}


async def test_stages_add_up_at_every_moment_of_a_mixed_load(start_router: StartRouter) -> None:
    """And in a fleet that has become quiet nothing is unexplained from the second scrape on."""
    async with engines(REPLICAS, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=REPLICAS, **LIMITS)
        seen: set[str] = set()
        async with mixed_load(router, fleet):
            for _ in range(LOOKS):
                document = (await router.ledger()).document
                in_stages = sum(document[stage] for stage in STAGES)
                ended = sum(document["finished"].values())
                assert in_stages == document["accepted"] == document["received_total"] - ended
                page = await router.metrics()
                assert in_stages_of(page) == page.value("requests_received_total") - page.value(
                    "requests_total"
                )
                seen |= {stage for stage in STAGES if document[stage]}
        page = await router.metrics()
        assert seen == set(STAGES), "the load was mixed enough"
        for name in ("retries_total", "client_gone_total"):
            assert page.value(name) > 0, name
        for engine in fleet:
            engine.clear_faults()
        await router.settled()
        await quiet(router)


def in_stages_of(page: Metrics) -> float:
    """Requests in any stage, by one page of the metrics."""
    names = ("requests_receiving", "requests_queued", "requests_outstanding")
    return sum(page.value(name) for name in names)


async def quiet(router: RunningRouter) -> None:
    """Wait for two scrapes of each engine; the second explains everything."""
    readings: dict[str, set[float]] = {}
    loop = asyncio.get_running_loop()
    since = loop.time()

    async def scraped_twice() -> bool:
        rows = (await router.ledger())["replicas"]
        for row in rows:
            taken = loop.time() - row["reading_age"]
            earlier = readings.setdefault(row["name"], set())
            if taken <= since or any(abs(taken - other) < INTERVAL / 2 for other in earlier):
                continue
            earlier.add(taken)
            assert len(earlier) < 2 or row["unexplained"] == 0, row
        return all(len(readings[row["name"]]) >= 2 for row in rows)

    await eventually(scraped_twice, "two scrapes of each engine")


@asynccontextmanager
async def mixed_load(router: RunningRouter, fleet: list[SimulatedEngine]) -> AsyncIterator[None]:
    """Streams, short requests, slow uploads, deserters, refusals, and more of all than there is room."""
    fleet[0].inject(kind="status", reason="busy", share=0.3)
    fleet[1].inject(kind="reset", share=0.1)
    kinds = [shorts] * 6 + [uploads] * 4 + [deserters] * 6
    async with users(router.port, 16, answer_tokens=(5, 40)):
        try:
            async with at_work(*(again_and_again(kind, router, n) for n, kind in enumerate(kinds))):
                yield
        finally:
            await router.leave()


Kind = Callable[[RunningRouter, Random], Awaitable[None]]


async def again_and_again(kind: Kind, router: RunningRouter, seed: int) -> None:
    random = Random(seed)
    while True:
        await kind(router, random)


async def shorts(router: RunningRouter, random: Random) -> None:
    """A request that is over soon."""
    await router.ask(chat(model=MODEL, stream=False, max_tokens=random.randint(1, 3)), deadline=30)


async def uploads(router: RunningRouter, random: Random) -> None:
    """A body that arrives in pieces, and sometimes not whole."""
    raw = chat(model=MODEL, stream=False, max_tokens=2)
    client = await router.begin(raw[:-20])
    await asyncio.sleep(random.uniform(0.005, 0.05))
    if random.random() < 0.7:
        await client.send(raw[-20:])
        await client.answer(30)
    client.leave("fin" if random.random() < 0.5 else "rst")


async def deserters(router: RunningRouter, random: Random) -> None:
    """A client that leaves at any moment."""
    client = await router.begin(chat(model=MODEL, max_tokens=100))
    await asyncio.sleep(random.uniform(0, 0.3))
    client.leave("fin" if random.random() < 0.5 else "rst")
