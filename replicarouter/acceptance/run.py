"""Running the checks one after the other. None of them can stop the others, or take for ever."""

import asyncio
from collections.abc import Callable, Iterator

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.checks import CHECKS
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, Result, failed, skipped
from replicarouter.acceptance.scene import Scene, Wishes


async def inspect(scene: Scene, heard: Callable[[Result], None]) -> list[Result]:
    """Run what is wished for; `heard` is told each result as it comes."""
    results = []
    for check, model in _planned(scene):
        start = scene.clock()
        finding = await _find(check, scene, model)
        seconds = scene.clock() - start
        results.append(Result(name=check.name, model=model, finding=finding, seconds=seconds))
        heard(results[-1])
    return results


def chosen(wishes: Wishes) -> list[Check]:
    """The checks that are wished for, in their order."""
    return [
        check
        for name, check in CHECKS.items()
        if name not in wishes.skip and (not wishes.only or name in wishes.only)
    ]


def _planned(scene: Scene) -> Iterator[tuple[Check, str]]:
    """First what concerns the whole fleet, then model by model."""
    checks = chosen(scene.wishes)
    yield from ((check, "") for check in checks if check.fleet)
    for model in scene.models or [""]:
        yield from ((check, model) for check in checks if not check.fleet)


async def _find(check: Check, scene: Scene, model: str) -> Finding:
    if not check.fleet and model not in scene.names:
        return skipped(f"{model} is not listed" if model else "no model is known")
    limit = scene.wishes.timeout
    try:
        async with asyncio.timeout(limit):
            # Gathered, because then any exception is an outcome: what an engine answers has no limits.
            (outcome,) = await asyncio.gather(check.run(scene, model), return_exceptions=True)
    except TimeoutError:
        return failed(f"not done within {limit:g} s", "--timeout SECONDS, if this fleet needs longer")
    if isinstance(outcome, Finding):
        return outcome
    if isinstance(outcome, CheckError):
        return failed(str(outcome))
    if isinstance(outcome, Exception):
        return failed(f"an answer could not be understood ({type(outcome).__name__}: {outcome})")
    raise outcome
