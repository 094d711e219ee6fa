"""Requests that are refused, fail, are tried again, or never come to be whole."""

import asyncio

from tests.fakes.client import chat
from tests.fakes.load import MODEL, at_work, diagnose, engines, finished, numbers, reached, users
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually

PATIENT = {"consecutive_failures": 1000}
"""No replica is set aside for its failures."""


async def test_requests_that_fail_at_one_replica_are_named(start_router: StartRouter) -> None:
    async with engines(2, speed=2.0) as fleet:
        urls = [engine.url for engine in fleet]
        router = await start_router(*urls, ready=2, eject=PATIENT, policy="round-robin")
        fleet[0].inject(kind="status", status=500, share=0.5)
        async with users(router.port, 12, answer_tokens=(5, 10)) as crowd:
            await eventually(lambda: crowd.tally.failures, "the first failure")
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("requests_failing", 4)
    assert verdict["replica"] == f"127.0.0.1:{fleet[0].port}"
    assert "upstream_error" in numbers(verdict)


async def test_requests_that_are_tried_again_are_named(start_router: StartRouter) -> None:
    async with engines(2, speed=2.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2, eject=PATIENT)
        fleet[0].inject(kind="status", reason="busy", retry_after=0, share=0.5)
        async with users(router.port, 12, answer_tokens=(10, 30)) as crowd:
            await finished(crowd, 12)
            diagnosis = await diagnose(router)
    assert diagnosis.status == 4
    diagnosis.verdict("retries")


async def test_requests_that_find_the_queue_full_are_named(start_router: StartRouter) -> None:
    async with engines(2) as fleet:
        admission = {"max_outstanding_per_replica": 4, "max_queued": 4}
        router = await start_router(*(engine.url for engine in fleet), ready=2, admission=admission)
        async with users(router.port, 20):
            await reached(router, running=8, queued=3)
            diagnosis = await diagnose(router, seconds=0.5)
    diagnosis.first("admission_limit", 3)
    verdict = diagnosis.verdict("requests_shed")
    assert "queue_full" in numbers(verdict)
    assert verdict["setting"] == "admission.max_queued"


async def test_bodies_that_arrive_slowly_are_named(start_router: StartRouter) -> None:
    async with engines(1) as (engine,):
        router = await start_router(engine.url, ready=1)
        for _ in range(6):
            await router.begin(chat(model=MODEL)[:-10])
        await reached(router, receiving=6)
        diagnosis = await diagnose(router, seconds=0.5)
        await router.leave()
    verdict = diagnosis.first("slow_uploads", 4)
    assert "6" in numbers(verdict)


async def test_clients_that_leave_are_noted(start_router: StartRouter) -> None:
    async with engines(1, speed=1.0) as (engine,):
        router = await start_router(engine.url, ready=1)
        async with at_work(*(leave_again_and_again(router) for _ in range(4))):
            await reached(router, streaming=3)
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("clients_leave", 0)
    assert verdict["side"] == "note"


async def leave_again_and_again(router: RunningRouter) -> None:
    """Ask, and have no patience."""
    while True:
        client = await router.begin(chat(model=MODEL, max_tokens=1000, ignore_eos=True))
        await asyncio.sleep(0.1)
        client.leave("rst")
