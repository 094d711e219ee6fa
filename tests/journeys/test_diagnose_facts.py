"""What makes figures mean something else than they seem to: caches, drafts, reasoning, unlike engines."""

import asyncio
from typing import Any

from tests.fakes.load import MODEL, diagnose, different_engines, engines, finished, numbers, users
from tests.fakes.running import StartRouter

LONG = [{"role": "user", "content": "The same long question, asked by everybody. " * 50}]


async def test_warm_cache_breaks_the_rule_of_a_cold_start(start_router: StartRouter) -> None:
    async with engines(2, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 8, answer_tokens=(5, 15), fields={"messages": LONG}) as crowd:
            await finished(crowd, 8)
            cold, unasked = await asyncio.gather(diagnose(router, "--expect-cold"), diagnose(router))
    verdict = cold.first("not_cold", 4)
    assert verdict["side"] == "elsewhere"
    assert (unasked.codes, unasked.status) == ([], 0), unasked


async def test_accepting_all_that_is_drafted_is_a_ceiling(start_router: StartRouter) -> None:
    async with engines(2, speculative_tokens=2, acceptance=1.0, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 4, answer_tokens=(40, 80)) as crowd:
            await finished(crowd, 1)
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("spec_ceiling", 4)
    assert "3" in numbers(verdict)
    assert "num_speculative_tokens" in verdict["setting"] + verdict["cure"]


async def test_usual_acceptance_is_no_ceiling(start_router: StartRouter) -> None:
    async with engines(2, speculative_tokens=2, acceptance=0.7, speed=1.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        async with users(router.port, 4, answer_tokens=(40, 80)) as crowd:
            await finished(crowd, 1)
            diagnosis = await diagnose(router)
    assert (diagnosis.codes, diagnosis.status) == ([], 0), diagnosis


async def test_first_token_of_a_model_that_reasons_is_noted(start_router: StartRouter) -> None:
    async with engines(2, speed=10.0) as fleet:
        router = await start_router(*(engine.url for engine in fleet), ready=2)
        fields = {"reasoning_effort": "high", "max_tokens": 200}
        async with users(router.port, 4, fields=fields) as crowd:
            await finished(crowd, 4)
            diagnosis = await diagnose(router)
    verdict = diagnosis.first("reasoning_first", 0)
    assert verdict["side"] == "note"


async def test_engines_of_one_pool_that_differ_are_named(start_router: StartRouter) -> None:
    """Also one that serves another model under the same name, as the settings let it."""
    others: list[dict[str, Any]] = [
        {"version": "0.31.0"},
        {"max_model_len": 4096},
        {"kv_cache_dtype": "fp8"},
        {"model": "another"},
    ]
    async with different_engines({}, {}, *others) as fleet:
        *urls, last = [engine.url for engine in fleet]
        router = await start_router(*urls, {"url": last, "models": [MODEL]}, ready=len(fleet))
        diagnosis = await diagnose(router, seconds=0.5)
    verdict = diagnosis.first("engines_differ", 4)
    evidence = [line.replace(",", "") for line in verdict["evidence"]]
    for engine, told in zip(fleet[2:], ("0.31.0", "4096", "fp8", "another"), strict=True):
        wanted = f"{told} at 127.0.0.1:{engine.port}"
        assert [line for line in evidence if wanted in line], "\n".join([wanted, *evidence])
    assert diagnosis.codes == ["engines_differ"], diagnosis
