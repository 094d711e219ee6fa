"""Whether an engine stops generating for a client that has left."""

from collections.abc import Awaitable, Callable

from replicarouter.acceptance.chat import CHAT, Question
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, Status, failed, passed, skipped, worst
from replicarouter.acceptance.pace import until
from replicarouter.acceptance.pages import sum_at_engines
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import addresses
from replicarouter.words import seconds_text

SOON = 1.0
"""Seconds in which the engine must have let go."""

PATIENCE = 3.0
"""Seconds that are waited to say how long it took instead."""

APPEARS = 3.0
"""Seconds for a running request to show in the numbers."""

MOST_TOKENS = 4096
EVENTS = 3
"""That are read before leaving."""

ENGINES = "the engines' counts"

Count = Callable[[], Awaitable[float | None]]


async def run(scene: Scene, model: str) -> Finding:
    """Leave a long stream at every door, one after the other, and watch the counts of what runs."""
    watch, whose = await _watch(scene, model)
    if watch is None:
        if scene.blind is not None:
            return skipped(f"it cannot be seen: {scene.unseen}")
        return skipped(
            "no engine tells how many requests run, and the router's ledger is not to be had",
            "switch the engines' metrics on, or give --admin URL",
        )
    # What goes past the router is not in its ledger.
    doors = scene.doors(model) if whose == ENGINES else [scene.main]
    findings = [await _leave(scene, model, door, watch) for door in doors]
    bad = worst(findings)
    if bad.status is Status.FAIL:
        return failed(f"engines go on for clients that have left: {bad.why}", bad.cure)
    if bad.status is not Status.PASS:
        return bad
    slowest = max(one.figures["seconds"] for one in findings)
    told = f"the engine is free after {seconds_text(slowest)} at most, at {addresses(findings)}, by {whose}"
    return passed(told, seconds=slowest)


async def _watch(scene: Scene, model: str) -> tuple[Count | None, str]:
    """How to see what runs, and whose count that is: the engines' own or, failing that, the router's."""
    if await _running(scene, model) is not None:

        async def count() -> float | None:
            return await _running(scene, model)

        return count, ENGINES
    if scene.admin is not None:
        return _ledger(scene.admin), "the router's ledger"
    return None, ""


async def _leave(scene: Scene, model: str, door: Door, count: Count) -> Finding:
    before = await count() or 0.0
    question = Question(
        model=model,
        messages=scene.prompts.small(),
        max_tokens=_room(scene, model),
        more={"ignore_eos": True},
    )
    door.meter.requests += 1
    async with door.streaming(CHAT, question.body(stream=True)) as (reply, events):
        where = f"{door.name} (met {reply.replica})" if reply.replica else door.name
        seen = 0
        async for _event in events:
            seen += 1
            if seen >= EVENTS:
                break

        async def runs() -> bool:
            return (await count() or 0.0) > before

        appeared = await until(runs, scene.clock, within=APPEARS)
    if appeared is None:
        return skipped(
            f"{door.name}: the answer had ended before it could be left, or does not show in the numbers"
        )

    async def free() -> bool:
        now = await count()
        return now is not None and now <= before

    took = await until(free, scene.clock, within=PATIENCE)
    if took is not None and took <= SOON:
        return passed(f"{door.name}: free after {seconds_text(took)}", seconds=took)
    told = f"for {seconds_text(took)}" if took is not None else f"for more than {PATIENCE:g} s"
    return failed(
        f"{where}, {told}",
        "does a proxy between hold the connection open? Engines stop when theirs closes; other traffic on the"
        " fleet also looks like this",
    )


def _room(scene: Scene, model: str) -> int:
    most = scene.max_length(model)
    return MOST_TOKENS if most is None else max(1, min(MOST_TOKENS, most // 2))


async def _running(scene: Scene, model: str) -> float | None:
    """Requests that the engines of a model run, by their own counts; None when one does not tell."""
    return await sum_at_engines(scene.serving(model), lambda page: page.running)


def _ledger(admin: Door) -> Count:
    async def count() -> float | None:
        document = (await admin.get("/admin/ledger")).document()
        stages = [document.get(stage) for stage in ("sent", "streaming")]
        return float(sum(stage for stage in stages if isinstance(stage, int)))

    return count


CHECK = Check(
    name="abort",
    asks="does an engine stop within a second when a client leaves",
    costs="a stream at each of R + 1 addresses, left after its first tokens",
    run=run,
)
