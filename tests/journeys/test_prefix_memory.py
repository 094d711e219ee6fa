"""What is remembered of prompts stays within its bound, however many there are."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.client import chat
from tests.fakes.replica import FakeReplica
from tests.fakes.served import Serve, Served
from tests.journeys.test_exhaustion import cpu_seconds
from tests.journeys.test_memory import MB, resident

BOUND = 400_000
CLIENTS = 16
TICK = 0.25
"""Seconds of its processor's time after which the router has answered an operator meanwhile; some hundredths
are typical. Not of the clock: other tests may have the processor."""


def prompts(start: int, count: int) -> Iterator[bytes]:
    """Requests of about 8 kB that have nothing in common."""
    for number in range(start, start + count):
        words = f"{number:08d} "
        yield chat(stream=False, messages=[{"role": "user", "content": words * (8000 // len(words))}])


async def send(router: Served, requests: Iterator[bytes]) -> None:
    async def client() -> None:
        connection = await router.connect()
        for request in requests:
            answer = await connection.ask(request)
            assert answer.status == 200, answer.body.raw[:300]

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def value(router: Served, series: str) -> float:
    page = (await router.get("/metrics")).body.raw.decode()
    found = re.search(rf"^replicarouter_{re.escape(series)} (\S+)$", page, re.MULTILINE)
    assert found is not None, series
    return float(found[1])


async def test_memory_of_prompts_reaches_a_plateau(serve: Serve, tmp_path: Path) -> None:
    """H74: 4,000 prompts of 8 kB that nobody has sent before; with a smaller bound than by default, so
    that it is reached soon."""
    settings = tmp_path / "router.yaml"
    settings.write_text(
        f"policy: prefix-cache\npolicy_options: {{prefix_index_bytes: {BOUND}}}\nlog: {{level: error}}\n"
    )
    replicas = [FakeReplica() for _ in range(4)]
    router = await serve(*replicas, flags=("--config", str(settings)))
    await router.until_ready(4)

    await send(router, prompts(0, 2000))
    half = resident(router)
    sending = asyncio.create_task(send(router, prompts(2000, 2000)))
    slowest = 0.0
    while not sending.done():
        asked = cpu_seconds(router.process.pid)
        assert (await router.get("/health")).status == 200
        slowest = max(slowest, cpu_seconds(router.process.pid) - asked)
    await sending

    assert resident(router) < half + 10 * MB
    assert slowest < TICK
    assert 0.5 * BOUND < await value(router, 'affinity_memory_bytes{model="m1"}') <= BOUND
    assert await value(router, 'affinity_forgotten_total{model="m1",reason="bound"}') > 10_000
    assert await value(router, 'affinity_total{policy="prefix-cache",result="new"}') == 4000
