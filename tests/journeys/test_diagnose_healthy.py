"""A fleet at half of its capacity: nothing is amiss, and nothing is said to be."""

import asyncio

from replicarouter.policies import POLICIES
from tests.fakes.load import Diagnosis, diagnose, engines, finished, reached, users
from tests.fakes.running import StartRouter

REPLICAS, SEQUENCES = 2, 8
USERS = REPLICAS * SEQUENCES // 2


async def test_steady_load_at_half_of_capacity_has_no_verdict_under_any_policy(
    start_router: StartRouter,
) -> None:
    """A fleet, a router and users for each policy, all at the same time."""
    found = await asyncio.gather(*(steady(start_router, policy) for policy in POLICIES))
    assert {policy: (one.codes, one.status) for policy, one in zip(POLICIES, found, strict=True)} == {
        policy: ([], 0) for policy in POLICIES
    }, "\n".join(map(str, found))


async def steady(start_router: StartRouter, policy: str) -> Diagnosis:
    async with engines(REPLICAS, max_num_seqs=SEQUENCES, speed=0.5) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=REPLICAS, policy=policy)
        async with users(router.port, USERS, answer_tokens=(20, 60), sessions=3) as crowd:
            await finished(crowd, USERS)
            return await diagnose(router, "--expect-concurrency", str(USERS), "--expect-cold", seconds=2)


async def test_fleet_without_any_request_has_no_verdict(start_router: StartRouter) -> None:
    async with engines(REPLICAS) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=REPLICAS)
        diagnosis = await diagnose(router)
    assert (diagnosis.codes, diagnosis.status) == ([], 0), diagnosis


async def test_generous_limits_that_hold_nobody_are_no_verdict(start_router: StartRouter) -> None:
    async with engines(REPLICAS, max_num_seqs=SEQUENCES) as fleet:
        router = await start_router(
            *(engine.url for engine in fleet),
            ready=REPLICAS,
            connector={"limit": USERS},
            admission={"max_outstanding_per_replica": SEQUENCES},
        )
        async with users(router.port, USERS):
            await reached(router, running=USERS)
            diagnosis = await diagnose(router)
    assert (diagnosis.codes, diagnosis.status) == ([], 0), diagnosis
