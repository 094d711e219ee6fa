"""What the router itself holds back: by its settings, its descriptors, its processor."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.client import HOST, request
from tests.fakes.load import Diagnosis, at_work, diagnose, engines, numbers, reached, users
from tests.fakes.running import StartRouter
from tests.fakes.served import Serve, Served

SHORT = ("--health-interval", "0.2", "--scrape-interval", "0.1")


async def test_admission_limit_is_named_with_what_waits_and_the_setting(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        urls = [engine.url for engine in fleet]
        router = await start_router(*urls, ready=2, admission={"max_outstanding_per_replica": 8})
        async with users(router.port, 40):
            await reached(router, running=15, queued=24)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("admission_limit", 3)
    assert verdict["side"] == "router"
    assert verdict["setting"] == "admission.max_outstanding_per_replica"
    told = numbers(verdict)
    assert "24" in told
    assert "8" in told
    assert diagnosis.codes == ["admission_limit"], diagnosis


async def test_limit_of_one_replica_is_named_by_its_own_setting(start_router: StartRouter) -> None:
    async with engines(1) as (engine,):
        router = await start_router({"url": engine.url, "max_outstanding": 4}, ready=1)
        async with users(router.port, 10):
            await reached(router, running=4, queued=6)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("admission_limit", 3)
    assert "max_outstanding" in verdict["setting"]
    assert "6" in numbers(verdict)


async def test_limit_of_connections_to_one_replica_is_named(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        urls = [engine.url for engine in fleet]
        router = await start_router(*urls, ready=2, connector={"limit_per_replica": 6})
        async with users(router.port, 30):
            await reached(router, running=11, connecting=18)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("connector_limit", 3)
    assert verdict["setting"] == "connector.limit_per_replica"
    assert "18" in numbers(verdict)


async def test_lack_of_file_descriptors_is_named(serve: Serve) -> None:
    async with engines(1) as (engine,):
        served = await serve(flags=("--replica", engine.url, *SHORT), descriptors=128)
        await served.until_ready(1)
        async with users(served.port, 70):
            await reached(served, running=20)
            diagnosis = await diagnose(served, seconds=0.5)
    verdict = diagnosis.first("file_descriptors", 3)
    assert verdict["side"] == "router"
    assert "128" in numbers(verdict)


@asynccontextmanager
async def scrapers(served: Served, count: int) -> AsyncIterator[None]:
    """So many who ask for the metrics without end, and throw them away: that costs the router far more than
    them."""
    asked = request("GET", "/metrics") * 20

    async def ask(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(asked)
            await writer.drain()

    async def discard(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 20):
            pass

    streams = [await asyncio.open_connection(HOST, served.port) for _ in range(count)]
    works = [work for reader, writer in streams for work in (discard(reader), ask(writer))]
    try:
        async with at_work(*works):
            yield
    finally:
        for _, writer in streams:
            writer.transport.abort()


@asynccontextmanager
async def starved(served: Served) -> AsyncIterator[None]:
    """The router gets a third of the time at most, in turns, as beside greedy neighbours."""

    async def starve() -> None:
        while True:
            os.kill(served.process.pid, signal.SIGSTOP)
            await asyncio.sleep(0.4)
            os.kill(served.process.pid, signal.SIGCONT)
            await asyncio.sleep(0.2)

    try:
        async with at_work(starve()):
            yield
    finally:
        os.kill(served.process.pid, signal.SIGCONT)


LATENESS = 5.0
"""Seconds of a look that tells whether a router is late."""


async def judged_late(served: Served) -> Diagnosis:
    """What is said of it; asked again where the machine has no core to spare, and those that starve are the
    engines, or who asks."""
    for _ in range(3):
        diagnosis = await diagnose(served, seconds=LATENESS)
        if diagnosis.codes[:1] == ["router_cpu"]:
            break
    return diagnosis


async def test_router_without_enough_of_a_processor_is_named(serve: Serve) -> None:
    """Be it that it has more to do than a core can, or that others have the core."""
    async with engines(2) as fleet:
        flags = [part for engine in fleet for part in ("--replica", engine.url)]
        served = await serve(flags=(*flags, *SHORT))
        await served.until_ready(2)
        async with users(served.port, 8):
            await reached(served, running=7)
            async with scrapers(served, 80):
                full = await judged_late(served)
            async with starved(served):
                without = await judged_late(served)
    for diagnosis in (full, without):
        verdict = diagnosis.first("router_cpu", 3)
        assert verdict["side"] == "router"
        assert "in its event loop" in numbers(verdict)
    assert "too little" in without.verdicts[0]["title"]
