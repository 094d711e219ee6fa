"""A slow benchmark, three times: the router's connector, the engines' queues, the client."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest_asyncio

from replicarouter.simulator import SimulatedEngine
from tests.fakes.load import diagnose, engines, numbers, reached, users
from tests.fakes.running import StartRouter

REPLICAS, USERS, LIMIT, SEQUENCES = 8, 256, 100, 16
RUNS = REPLICAS * SEQUENCES


@pytest_asyncio.fixture
async def fleet() -> AsyncIterator[list[SimulatedEngine]]:
    """Eight engines that run sixteen sequences each."""
    async with engines(REPLICAS, max_num_seqs=SEQUENCES, speed=0.2) as started:
        yield started


def counts(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def near(text: str, wanted: float, share: float = 0.1) -> bool:
    """Whether a number of the text is about this."""
    return any(abs(number - wanted) <= share * wanted for number in counts(text))


async def test_connector_limit_is_named_first_with_the_numbers_and_the_setting(
    fleet: list[SimulatedEngine], start_router: StartRouter
) -> None:
    """256 users, a limit of 100 connections, eight replicas with room: 156 requests wait in the router."""
    urls = [engine.url for engine in fleet]
    router = await start_router(*urls, ready=REPLICAS, connector={"limit": LIMIT})
    async with users(router.port, USERS):
        ledger = await reached(router, accepted=USERS, running=LIMIT - 4)
        assert ledger["connecting"] >= USERS - LIMIT - 4
        diagnosis = await diagnose(router)
    verdict = diagnosis.first("connector_limit", 3)
    assert verdict["side"] == "router"
    assert verdict["setting"] == "connector.limit"
    told = numbers(verdict)
    assert near(told, LIMIT, 0.05)
    assert near(told, USERS - LIMIT, 0.05)
    assert "engine_queueing" not in diagnosis.codes, diagnosis


async def test_with_the_limit_lifted_it_is_the_queues_of_the_engines(
    fleet: list[SimulatedEngine], start_router: StartRouter
) -> None:
    urls = [engine.url for engine in fleet]
    router = await start_router(*urls, ready=REPLICAS)
    async with users(router.port, USERS):
        await reached(router, running=RUNS - 4, waiting=USERS - RUNS - 12)
        diagnosis = await diagnose(router, "--expect-concurrency", str(USERS))
    verdict = diagnosis.first("engine_queueing", 4)
    assert verdict["side"] == "elsewhere"
    assert "max_num_seqs" in verdict["setting"] + verdict["cure"]
    told = numbers(verdict)
    assert near(told, USERS - RUNS)
    assert near(told, RUNS)
    assert diagnosis.codes == ["engine_queueing"], diagnosis


async def test_client_that_opens_too_few_connections_is_named(
    fleet: list[SimulatedEngine], start_router: StartRouter
) -> None:
    urls = [engine.url for engine in fleet]
    router = await start_router(*urls, ready=REPLICAS)
    async with users(router.port, LIMIT):
        await reached(router, running=LIMIT - 4)
        diagnosis, unasked = await asyncio.gather(
            diagnose(router, "--expect-concurrency", str(USERS)), diagnose(router)
        )
    verdict = diagnosis.first("client_limited", 4)
    assert verdict["side"] == "elsewhere"
    told = numbers(verdict)
    assert near(told, LIMIT, 0.05)
    assert str(USERS) in told
    assert diagnosis.codes == ["client_limited"], diagnosis
    assert (unasked.codes, unasked.status) == ([], 0), unasked
