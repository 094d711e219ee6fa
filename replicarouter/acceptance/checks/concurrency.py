"""Whether 1, 4, 8 and N streams at a time all come whole, and how fast the first and next tokens come."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, failed, passed, warned
from replicarouter.acceptance.limits import binding, bounds
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.pages import RouterPage
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import by_value, counted, median, names
from replicarouter.words import seconds_text

TOKENS = 64
_SMALL_LEVELS = (1, 4, 8)

NOTICEABLE = 0.25
"""Seconds a stream has to be late to count as held up, beside being late against its like."""


@dataclass(frozen=True, slots=True)
class Level:
    """What came of so many streams at a time; `late` began only when others had ended, and `held` of them
    were kept by the router for `longest` seconds at most. `replicas` says how many each replica had, and
    `ttfts` their medians, where it is told which replica answers."""

    streams: int
    ttft: float | None
    itl: float | None
    late: int
    held: int
    longest: float
    replicas: dict[str, int]
    ttfts: dict[str, float]
    faults: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """For the figures."""
        return {
            "streams": self.streams,
            "ttft_p50": self.ttft,
            "itl_p50": self.itl,
            "late": self.late,
            "held_by_router": self.held,
            "replicas": self.replicas,
            "ttft_p50_by_replica": self.ttfts,
        }

    @property
    def slow(self) -> list[str]:
        """The replicas whose first tokens take far longer than those of the fastest."""
        fastest = min(self.ttfts.values(), default=0.0)
        return [name for name, ttft in self.ttfts.items() if ttft > max(NOTICEABLE, 4 * fastest)]


async def run(scene: Scene, model: str) -> Finding:
    """Open the streams of each level at once, and wait until all have ended."""
    wanted = scene.wishes.concurrency
    levels: list[Level] = []
    for count in [*(level for level in _SMALL_LEVELS if level < wanted), wanted]:
        questions = [
            Question(
                model=model,
                messages=scene.prompts.small(),
                max_tokens=TOKENS,
                more={"ignore_eos": True},
            )
            for _ in range(count)
        ]
        answers = await together(ask(scene.main, one, stream=True) for one in questions)
        levels.append(measure(answers, levels[0].ttft if levels else None))
    held = next((level for level in levels if level.held), None)
    return _finding(levels, await _what_holds(scene, model, held.streams) if held else "")


async def _what_holds(scene: Scene, model: str, streams: int) -> str:
    """The settings that make the router hold some of so many streams, and what to set them to."""
    try:
        page = RouterPage(await scene.main.get("/metrics"))
        found = binding(bounds(page, [[replica.name for replica in scene.serving(model)]]), streams)
    except CheckError as error:
        return f"`replicarouter diagnose` under load says which limit it is; it cannot be seen here: {error}"
    if not found:
        return (
            "no limit of the router is below that: is there other traffic, or a replica on trial after an"
            " ejection? `replicarouter diagnose` under load says more"
        )
    wanted = max(streams, scene.wishes.concurrency)
    return "; ".join(f"{bound.told}: set {bound.cure(wanted)}" for bound in found)


def measure(outcomes: Sequence[Answer | CheckError], lone_ttft: float | None) -> Level:
    """Sum up one level; `lone_ttft` is the time to first token of a stream that was alone."""
    answers = [one for one in outcomes if isinstance(one, Answer)]
    bar = max(NOTICEABLE, 4 * (lone_ttft or 0.0))
    held = [one.reply.held for one in _late(answers, bar) if _held(one, bar)]
    # The router's limit is one for all. An engine's queue is its own: that others have ended frees no place.
    groups = _by_replica(answers)
    queued = [one for group in groups.values() for one in _queued(group, bar) if not _held(one, bar)]
    named = {name: group for name, group in groups.items() if name}
    ttfts = {name: _ttft(group) for name, group in named.items()}
    return Level(
        streams=len(outcomes),
        ttft=_ttft(answers),
        itl=median([gap for one in answers if (gap := one.mean_gap) is not None]),
        late=len(held) + len(queued),
        held=len(held),
        longest=max(held, default=0.0),
        replicas={name: len(group) for name, group in named.items()},
        ttfts={name: ttft for name, ttft in ttfts.items() if ttft is not None},
        faults=tuple(dict.fromkeys(fault for one in outcomes for fault in _faults(one))),
    )


def _by_replica(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Who answered what; under "" where that is not told."""
    groups: dict[str, list[Answer]] = {}
    for one in answers:
        groups.setdefault(one.reply.replica, []).append(one)
    return groups


def _late(answers: Sequence[Answer], bar: float) -> list[Answer]:
    """Those that began only when one of the others had ended."""
    first_end = min((one.ended_at for one in answers), default=0.0)
    return [one for one in answers if one.began_after(first_end) and (one.ttft or 0.0) > bar]


def _held(answer: Answer, bar: float) -> bool:
    """Whether it is the router that made it late: most of its wait was there."""
    return answer.reply.held > max(bar, answer.ttft or 0.0) / 2


def _queued(answers: Sequence[Answer], bar: float) -> list[Answer]:
    """Those of one replica that waited for a place there: late, and later than it always begins."""
    usual = min(one.ttft or 0.0 for one in answers)
    return [one for one in _late(answers, bar) if (one.ttft or 0.0) > usual + NOTICEABLE]


def _ttft(answers: Sequence[Answer]) -> float | None:
    return median([one.ttft for one in answers if one.ttft is not None])


def _faults(answer: Answer | CheckError) -> list[str]:
    if isinstance(answer, CheckError):
        return [str(answer)]
    faults = list(answer.faults)
    if answer.usage is None:
        faults.append("it has no usage")
    if answer.finish is None:
        faults.append("it has no finish reason")
    return [f"a stream of {answer.reply.place}: {fault}" for fault in faults]


def _finding(levels: Sequence[Level], what_holds: str) -> Finding:
    """Judge all levels; `what_holds` is the cure where the router held streams."""
    figures = {"levels": [level.document() for level in levels]}
    table = (
        f"{counted(level.streams, 'stream')}: TTFT {seconds_text(level.ttft)}, ITL {seconds_text(level.itl)}"
        for level in levels
    )
    told = "; ".join(table) + " (medians)"
    for level in levels:
        if level.faults:
            why = f"at {counted(level.streams, 'stream')} not all came whole: {names(level.faults)}; {told}"
            return failed(why, "see the router's access log, and the engines' logs at this time", **figures)
    for level in levels:
        if level.held:
            held = (
                f"the router held {level.held} for up to {seconds_text(level.longest)} until others had ended"
            )
            return failed(f"at {level.streams} streams {held}; {told}", what_holds, **figures)
        if level.late:
            unsure = "" if level.replicas else ", or one of them is slow"
            return warned(
                f"at {level.streams} streams{_spread(level)} {level.late} began only when others had ended:"
                f" the engines queue{unsure}; {told}",
                "raise the engines' --max-num-seqs, or add replicas, if that many will run",
                **figures,
            )
    if slow := levels[-1].slow:
        ttfts = levels[-1].ttfts
        long = by_value({name: seconds_text(ttfts[name]) for name in slow})
        return warned(
            f"all came whole, but first tokens take {long}, and {seconds_text(min(ttfts.values()))}"
            f" elsewhere; {told}",
            "compare GPU, flags, load and network of the slow with the others'",
            **figures,
        )
    return passed(f"all came whole; {told}", **figures)


def _spread(level: Level) -> str:
    """How they were distributed, where that was uneven."""
    counts = sorted(level.replicas.values(), reverse=True)
    uneven = len(counts) > 1 and counts[0] - counts[-1] > 1
    return f" (spread {' + '.join(map(str, counts))})" if uneven else ""


CHECK = Check(
    name="concurrency",
    asks="do 1, 4, 8 and N streams at a time all come whole",
    costs="13 + N streams of 64 tokens",
    run=run,
)
