"""What limits behind the router: caches, one bad engine, strangers, servers that hold requests back."""

import asyncio

from replicarouter.simulator import SimulatedEngine
from tests.fakes.load import diagnose, different_engines, engines, finished, numbers, reached, users
from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually


def name(engine: SimulatedEngine) -> str:
    return f"127.0.0.1:{engine.port}"


async def test_full_kv_cache_is_named_with_usage_and_preemptions(start_router: StartRouter) -> None:
    async with engines(2, kv_blocks=60, speed=2.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 32, answer_tokens=(40, 80)) as crowd:
            await finished(crowd, 4)
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("kv_pressure", 4)
    assert verdict["side"] == "elsewhere"
    assert "preempt" in numbers(verdict)


async def test_stalled_replica_is_named(start_router: StartRouter) -> None:
    async with engines(3, speed=1.0) as fleet:
        health = {"stall_after": 0.5, "stall_end": 60}
        router = await start_router(*(engine.url for engine in fleet), ready=3, health=health)
        async with users(router.port, 12, answer_tokens=(20, 60)) as crowd:
            await finished(crowd, 6)
            fleet[1].inject(kind="frozen")
            await stalled(router, fleet[1])
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("stalled_replica", 4)
    assert verdict["replica"] == name(fleet[1])


async def stalled(router: RunningRouter, engine: SimulatedEngine) -> None:
    """Wait until the router says that this one is stalled."""

    async def judged() -> bool:
        rows = {row["name"]: row for row in (await router.ledger())["replicas"]}
        return bool(rows[name(engine)]["stalled"])

    await eventually(judged, "the replica is stalled")


async def test_slow_replica_is_named_with_its_pace_beside_that_of_its_peers(
    start_router: StartRouter,
) -> None:
    async with engines(4, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=4)
        fleet[2].inject(kind="slow", factor=5)
        async with users(router.port, 16):
            await reached(router, running=16)
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("slow_replica", 4)
    assert verdict["replica"] == name(fleet[2])
    assert diagnosis.codes == ["slow_replica"], diagnosis


async def test_requests_of_others_are_seen(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 8), users(fleet[0].port, 12):
            await reached(router, running=19)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("foreign_traffic", 4)
    assert verdict["replica"] == name(fleet[0])
    assert "12" in numbers(verdict)


async def test_requests_that_a_server_holds_back_from_its_scheduler_are_seen(
    start_router: StartRouter,
) -> None:
    async with engines(2, speed=1.0) as fleet:
        for engine in fleet:
            engine.inject(kind="delay", delay=2)
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 16, answer_tokens=(5, 10)):
            await reached(router, sent=15)
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("held_before_scheduler", 4)
    assert verdict["side"] == "elsewhere"


async def test_restarted_engine_is_named(start_router: StartRouter) -> None:
    async with engines(3, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=3)
        async with users(router.port, 9, answer_tokens=(20, 60)) as crowd:
            await finished(crowd, 9)
            asked = asyncio.ensure_future(diagnose(router, seconds=2, again=0))
            await asyncio.sleep(0.7)
            fleet[1].inject(kind="core_killed", seconds=0.3, linger=0.0)
            diagnosis = await asked
    verdict = diagnosis.verdict("engine_restarted")
    assert verdict["replica"] == name(fleet[1])
    assert diagnosis.status == 4


async def test_replica_that_refuses_is_named_with_its_state(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 8):
            await reached(router, running=8)
            fleet[0].inject(kind="refuse")
            fleet[0].limit_idleness(0.1)

            async def out() -> bool:
                rows = (await router.ledger())["replicas"]
                return {row["state"] for row in rows} == {"ready", "unhealthy"}

            await eventually(out, "one is unhealthy")
            diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("replica_out", 4)
    assert verdict["replica"] == name(fleet[0])
    assert "unhealthy" in verdict["title"] + numbers(verdict)


async def test_fleet_without_a_ready_replica_is_named(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        for engine in fleet:
            engine.inject(kind="refuse")

        async def none() -> bool:
            return {row["state"] for row in (await router.ledger())["replicas"]} == {"unhealthy"}

        await eventually(none, "none is ready")
        diagnosis = await diagnose(router, seconds=0.5)
    diagnosis.first("no_replica", 4)


async def test_engine_whose_metrics_cannot_be_read_is_named(start_router: StartRouter) -> None:
    well, mute = FakeReplica(), FakeReplica()
    mute.probes.gauges = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
    router = await start_router(well, mute)
    diagnosis = await diagnose(router, seconds=0.5, again=0)
    verdict = diagnosis.verdict("readings_missing")
    assert verdict["replica"] == mute.name
    assert diagnosis.status in (0, 4)


async def test_series_that_an_engine_lacks_are_named(start_router: StartRouter) -> None:
    lacking = {"without_metrics": ("vllm:num_requests_waiting",)}
    async with different_engines({}, lacking) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("series_missing", 4)
    assert verdict["replica"] == name(fleet[1])
    assert "num_requests_waiting" in numbers(verdict)
