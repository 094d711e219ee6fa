"""Checks run in order, and none of them stops the others or takes for ever."""

import asyncio
import random
import time

import pytest

from replicarouter.acceptance import (
    CHECKS,
    Check,
    CheckError,
    Finding,
    Place,
    Result,
    Scene,
    Status,
    Wishes,
    chosen,
    discover,
    inspect,
    open_session,
)
from replicarouter.acceptance.finding import passed
from tests.acceptance.scripted import Scripted


async def run_all(wishes: Wishes, *, also: Scripted | None = None) -> list[Result]:
    async with also or Scripted() as one, open_session() as session:
        scene = await discover(Place(url=one.url), wishes, session, time.monotonic, random.Random(1))
        heard: list[Result] = []
        results = await inspect(scene, heard.append)
        assert heard == results
        return results


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only three checks: one that fails oddly, one that hangs, one that passes."""

    async def odd(_scene: Scene, _model: str) -> Finding:
        raise KeyError("choices")

    async def refused(_scene: Scene, _model: str) -> Finding:
        raise CheckError("nobody answers")

    async def hang(_scene: Scene, _model: str) -> Finding:
        await asyncio.Event().wait()
        return passed("never")

    async def fine(_scene: Scene, model: str) -> Finding:
        return passed(f"fine for {model or 'all'}")

    runs = {"odd": odd, "refused": refused, "hang": hang, "fine": fine}
    for name in list(CHECKS):
        monkeypatch.delitem(CHECKS, name)
    for name, run in runs.items():
        monkeypatch.setitem(CHECKS, name, Check(name=name, asks="", costs="", run=run))


@pytest.mark.usefixtures("three")
async def test_one_that_fails_or_hangs_does_not_stop_the_others() -> None:
    results = {one.name: one for one in await run_all(Wishes(timeout=0.1))}
    assert {name: one.finding.status for name, one in results.items()} == {
        "odd": Status.FAIL,
        "refused": Status.FAIL,
        "hang": Status.FAIL,
        "fine": Status.PASS,
    }
    assert results["refused"].finding.why == "nobody answers"
    assert "KeyError" in results["odd"].finding.why
    assert results["hang"].finding.why == "not done within 0.1 s"


@pytest.mark.usefixtures("three")
async def test_each_model_is_checked() -> None:
    results = await run_all(Wishes(only=frozenset(("fine",)), models=("m1", "m2")))
    assert [(one.model, one.finding.status) for one in results] == [
        ("m1", Status.PASS),
        ("m2", Status.SKIPPED),
    ]
    assert results[1].finding.why == "m2 is not listed"


@pytest.mark.usefixtures("three")
async def test_without_any_model_that_is_said() -> None:
    nameless = Scripted(model=None)
    (result,) = await run_all(Wishes(only=frozenset(("fine",))), also=nameless)
    assert (result.finding.status, result.finding.why) == (Status.SKIPPED, "no model is known")


def test_only_and_skip_choose() -> None:
    assert [check.name for check in chosen(Wishes())] == [*CHECKS]
    both = Wishes(only=frozenset(("usage", "abort")), skip=frozenset(("abort",)))
    assert [check.name for check in chosen(both)] == ["usage"]


async def test_a_caller_that_gives_up_ends_the_check() -> None:
    slow = Scripted(pace=30)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await run_all(Wishes(only=frozenset(("concurrency",))), also=slow)
