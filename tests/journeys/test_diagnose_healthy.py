"""A fleet at half of its capacity: nothing is amiss, and nothing is said to be."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.load import Diagnosis, diagnose, engines, finished, users
from tests.fakes.running import StartRouter

REPLICAS, SEQUENCES = 2, 12
USERS = REPLICAS * SEQUENCES // 2

LOOKS_FOR = 2.5
"""Seconds: a moment in which the machine is busy otherwise is no verdict."""

READS = {"interval": 0.25}
"""How often engines are read, for the same reason."""

SCENES: Mapping[str, Mapping[str, Any]] = {
    **{policy: {"policy": policy} for policy in POLICIES},
    "generous limits": {
        "connector": {"limit": USERS},
        "admission": {"max_outstanding_per_replica": SEQUENCES},
    },
}


@pytest.mark.parametrize("part", [0, 1])
async def test_steady_load_at_half_of_capacity_has_no_verdict_under_any_policy(
    start_router: StartRouter, part: int
) -> None:
    """A fleet, a router and users for each policy of a part of them, at the same time."""
    names = list(SCENES)[part::2]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(steady(start_router, **SCENES[name])) for name in names]
    found = [task.result() for task in tasks]
    assert {name: (one.codes, one.status) for name, one in zip(names, found, strict=True)} == {
        name: ([], 0) for name in names
    }, "\n".join(map(str, found))


async def steady(start_router: StartRouter, **options: Any) -> Diagnosis:
    async with engines(REPLICAS, max_num_seqs=SEQUENCES) as fleet:
        urls = [engine.url for engine in fleet]
        router = await start_router(*urls, ready=REPLICAS, scrape=READS, **options)
        async with users(router.port, USERS, answer_tokens=(10, 60), sessions=3) as crowd:
            await finished(crowd, USERS // 2)
            expected = ("--expect-concurrency", str(USERS), "--expect-cold")
            return await diagnose(router, *expected, seconds=LOOKS_FOR)


async def test_fleet_without_any_request_has_no_verdict(start_router: StartRouter) -> None:
    async with engines(REPLICAS) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=REPLICAS, scrape=READS)
        diagnosis = await diagnose(router, seconds=0.5)
    assert (diagnosis.codes, diagnosis.status) == ([], 0), diagnosis
