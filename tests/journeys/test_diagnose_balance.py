"""Load that is not spread, and conversations that lose their replica: what is the cause."""

import asyncio

from tests.fakes.load import diagnose, engines, finished, numbers, reached, users
from tests.fakes.running import StartRouter


async def test_uneven_weights_are_the_cause(start_router: StartRouter) -> None:
    async with engines(2, max_num_seqs=8) as fleet:
        replicas = [
            {"url": engine.url, "weight": weight} for engine, weight in zip(fleet, (4, 1), strict=True)
        ]
        router = await start_router(*replicas, ready=2)
        async with users(router.port, 15):
            await reached(router, running=8, waiting=3)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("load_imbalance", 3)
    assert "weight" in numbers(verdict)


async def test_one_session_of_all_is_the_cause(start_router: StartRouter) -> None:
    async with engines(4, max_num_seqs=2) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=4, policy="session")
        async with users(router.port, 4, fields={"user": "everybody"}):
            await reached(router, running=2, waiting=2)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("load_imbalance", 4)
    assert "session" in numbers(verdict)


async def test_replica_that_comes_back_is_the_cause(start_router: StartRouter) -> None:
    """It gets its share slowly while its peer has a queue."""
    async with engines(2, max_num_seqs=8, speed=1.0) as fleet:
        health = {"slow_start": 60}
        router = await start_router(*(engine.url for engine in fleet), ready=2, health=health)
        fleet[1].inject(kind="refuse")
        fleet[1].limit_idleness(0.05)
        async with users(router.port, 24, answer_tokens=(20, 40)):
            await reached(router, running=8, waiting=14)
            asked = asyncio.ensure_future(diagnose(router, seconds=4, again=0))
            # In the middle of the looks: the command takes its time to start where other tests run beside.
            await asyncio.sleep(2.2)
            fleet[1].clear_faults()
            diagnosis = await asked
    verdict = diagnosis.verdict("load_imbalance")
    assert f"127.0.0.1:{fleet[1].port} came back" in numbers(verdict)
    assert verdict["setting"] == "health.slow_start"


async def test_blind_policy_is_the_cause(start_router: StartRouter) -> None:
    """Round robin beside a slow engine: its requests pile up."""
    async with engines(2, max_num_seqs=4, speed=1.0) as fleet:
        fleet[0].inject(kind="slow", factor=6)
        router = await start_router(*(engine.url for engine in fleet), ready=2, policy="round-robin")
        async with users(router.port, 12, answer_tokens=(10, 20)) as crowd:
            await finished(crowd, 12)
            await reached(router, waiting=4)  # The router has read it of the engine.
            diagnosis = await diagnose(router)
    verdict = diagnosis.verdict("load_imbalance")
    assert "round-robin" in numbers(verdict)
    assert "slow_replica" in diagnosis.codes


async def test_sessions_that_spill_are_seen_once(start_router: StartRouter) -> None:
    """As a hot key where it fills its replica, else as affinity that is lost."""
    async with engines(3, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=3, policy="session")
        async with users(router.port, 24, answer_tokens=(5, 15), fields={"user": "everybody"}) as crowd:
            await finished(crowd, 24)
            diagnosis = await diagnose(router)
    (code,) = {"load_imbalance", "affinity_lost"}.intersection(diagnosis.codes)
    assert "sent elsewhere" in numbers(diagnosis.verdict(code))


async def test_sessions_that_lose_their_replica_are_seen(start_router: StartRouter) -> None:
    async with engines(3, speed=2.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=3, policy="session")
        async with users(router.port, 12, answer_tokens=(5, 10), sessions=10) as crowd:
            await finished(crowd, 120)
            asked = asyncio.ensure_future(diagnose(router, again=0))
            gone = f"127.0.0.1:{fleet[0].port}"
            await asyncio.sleep(0.6)
            assert (await router.admin(f"/admin/replicas/{gone}/drain", "POST")).status in (200, 202)
            diagnosis = await asked
    verdict = diagnosis.verdict("affinity_lost")
    assert "gone" in numbers(verdict)
