"""Several things at the same time, and waiting for something to become true."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from replicarouter.acceptance.door import Door
from replicarouter.acceptance.errors import CheckError
from replicarouter.clock import Clock

Outcome = TypeVar("Outcome")

POLL = 0.02
"""Seconds between two looks at something that is waited for."""


@dataclass(frozen=True, slots=True)
class Gathered(Generic[Outcome]):
    """What came of asking several doors: the outcomes by door, and why the others have none."""

    good: tuple[tuple[Door, Outcome], ...]
    problems: tuple[str, ...]


async def at_each(doors: Sequence[Door], step: Callable[[Door], Awaitable[Outcome]]) -> Gathered[Outcome]:
    """Do `step` at all doors at the same time; a `CheckError` at one does not stop the others."""
    outcomes = await together(step(door) for door in doors)
    pairs = list(zip(doors, outcomes, strict=True))
    return Gathered(
        tuple((door, outcome) for door, outcome in pairs if not isinstance(outcome, CheckError)),
        tuple(str(outcome) for _, outcome in pairs if isinstance(outcome, CheckError)),
    )


async def together(steps: Iterable[Awaitable[Outcome]]) -> list[Outcome | CheckError]:
    """Do all steps at the same time; what each gave, or the `CheckError` that it raised."""
    return list(await asyncio.gather(*map(_settled, steps)))


async def until(condition: Callable[[], Awaitable[bool]], clock: Clock, *, within: float) -> float | None:
    """Look again and again; the seconds until it was true, None if it was not `within` so many."""
    start = clock()
    while True:
        holds = await condition()
        passed = clock() - start
        if holds:
            return passed
        if passed > within:
            return None
        await asyncio.sleep(POLL)


async def _settled(step: Awaitable[Outcome]) -> Outcome | CheckError:
    try:
        return await step
    except CheckError as error:
        return error
