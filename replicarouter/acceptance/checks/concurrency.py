"""Whether 1, 4, 8 and N streams at a time all come whole, and how fast the first and next tokens come."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, failed, passed, warned
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import median, names, seconds

TOKENS = 64
_SMALL_LEVELS = (1, 4, 8)

NOTICEABLE = 0.25
"""Seconds a stream has to be late to count as held up, beside being late against its like."""


@dataclass(frozen=True, slots=True)
class Level:
    """What came of so many streams at a time; `late` began only when others had ended, and `held` of them
    were kept by the router for `longest` seconds at most."""

    streams: int
    ttft: float | None
    itl: float | None
    late: int
    held: int
    longest: float
    replicas: dict[str, int]
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
        }


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
    return _finding(levels)


def measure(outcomes: Sequence[Answer | CheckError], lone_ttft: float | None) -> Level:
    """Sum up one level; `lone_ttft` is the time to first token of a stream that was alone."""
    answers = [one for one in outcomes if isinstance(one, Answer)]
    faults = [fault for one in outcomes for fault in _faults(one)]
    bar = max(NOTICEABLE, 4 * (lone_ttft or 0.0))
    first_end = min((one.ended_at for one in answers), default=0.0)
    late = [one for one in answers if one.began_after(first_end) and (one.ttft or 0.0) > bar]
    held = [one.reply.held for one in late if one.reply.held > bar / 2]
    return Level(
        streams=len(outcomes),
        ttft=median([one.ttft for one in answers if one.ttft is not None]),
        itl=median([gap for one in answers if (gap := one.mean_gap) is not None]),
        late=len(late),
        held=len(held),
        longest=max(held, default=0.0),
        replicas=dict(Counter(one.reply.replica for one in answers if one.reply.replica)),
        faults=tuple(dict.fromkeys(faults)),
    )


def _faults(answer: Answer | CheckError) -> list[str]:
    if isinstance(answer, CheckError):
        return [str(answer)]
    faults = list(answer.faults)
    if answer.usage is None:
        faults.append("it has no usage")
    if answer.finish is None:
        faults.append("it has no finish reason")
    return [f"a stream of {answer.reply.place}: {fault}" for fault in faults]


def _finding(levels: Sequence[Level]) -> Finding:
    figures = {"levels": [level.document() for level in levels]}
    table = ", ".join(f"{level.streams}: {seconds(level.ttft)}/{seconds(level.itl)}" for level in levels)
    told = f"TTFT/ITL p50 at {table}"
    for level in levels:
        if level.faults:
            why = f"at {level.streams} streams not all came whole: {names(level.faults)}; {told}"
            return failed(why, "see the router's access log, and the engines' logs at this time", **figures)
    for level in levels:
        if level.held:
            return warned(
                f"at {level.streams} streams the router held {level.held} for up to {seconds(level.longest)}"
                f" until others had ended; {told}",
                "--connector-limit 0, and see admission.max_outstanding_per_replica; `replicarouter diagnose`"
                " says which",
                **figures,
            )
        if level.late:
            return warned(
                f"at {level.streams} streams{_spread(level)} {level.late} began only when others had ended:"
                f" the engines queue; {told}",
                "raise the engines' --max-num-seqs, or add replicas, if that many will run",
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
