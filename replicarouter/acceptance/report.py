"""The acceptance as people and programs read it: lines of a table, and a document. No I/O."""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from replicarouter.acceptance.finding import Result, Status
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import counted, names

_STYLES = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.SKIPPED: "dim"}
_PLURALS = {
    Status.PASS: "passed",
    Status.WARN: "with a warning",
    Status.FAIL: "failed",
    Status.SKIPPED: "skipped",
}
_NAME, _STATUS = 15, 9
_BEFORE_UNIT, _NO_BREAK = re.compile(r"(?<=\d) (?=m?s\b|streams?:)"), "\N{NO-BREAK SPACE}"
_LEAST_WORDS = 30
"""Columns that are kept for words on the narrowest terminal."""


def heading(scene: Scene, width: int) -> Text:
    """What is being looked at, and the titles of the columns."""
    told = "\n".join(_wrapped(f"{scene.main.url}: {_what(scene)}", width))
    return Text(f"{told}\n\n{'check':{_NAME}}{'result':{_STATUS}}why\n{'-' * min(width, 79)}")


def row(result: Result, width: int, *, with_model: bool) -> Text:
    """The line of one check, and further ones for words that do not fit and for the cure."""
    finding = result.finding
    room = max(width - _NAME - _STATUS, _LEAST_WORDS)
    model = f"{result.model}: " if with_model and result.model else ""
    lines = _wrapped(model + finding.why, room)
    if finding.cure:
        lines += _wrapped(f"cure: {finding.cure}", room)
    margin = " " * (_NAME + _STATUS)
    shown = finding.status.value.upper()
    text = Text.assemble(f"{result.name:{_NAME}}", (shown, _STYLES[finding.status]))
    return text.append(" " * (_STATUS - len(shown)) + f"\n{margin}".join(lines))


def closing(scene: Scene, results: Sequence[Result], width: int) -> Text:
    """How it ended, and what it cost the fleet."""
    counts = Counter(result.finding.status for result in results)
    told = ", ".join(f"{counts[status]} {_PLURALS[status]}" for status in Status if counts[status])
    meter = scene.meter
    cost = f"{counted(meter.requests, 'request')} sent, {meter.prompt_tokens:,} prompt and"
    cost += f" {meter.completion_tokens:,} generated tokens"
    verdict = "accepted" if accepted(results) else "not accepted"
    text = Text(textwrap.fill(f"{verdict}: {told or 'nothing was checked'}; {cost}", width))
    text.stylize(_STYLES[Status.PASS if accepted(results) else Status.FAIL], 0, len(verdict))
    return text


def accepted(results: Sequence[Result]) -> bool:
    """Whether no check has failed."""
    return all(result.finding.status is not Status.FAIL for result in results)


def document(scene: Scene, results: Sequence[Result]) -> dict[str, Any]:
    """For `--json`."""
    counts = Counter(result.finding.status for result in results)
    return {
        "url": scene.main.url,
        "router": scene.router,
        "replicas": [
            {"name": replica.name, "url": replica.door.url, "models": replica.models}
            for replica in scene.replicas
        ],
        "replicas_unknown": scene.blind.why if scene.blind else None,
        "accepted": accepted(results),
        "counts": {status.value: counts[status] for status in Status},
        "requests": scene.meter.requests,
        "prompt_tokens": scene.meter.prompt_tokens,
        "completion_tokens": scene.meter.completion_tokens,
        "results": [result.document() for result in results],
    }


def _what(scene: Scene) -> str:
    if not scene.router:
        return "a single engine"
    blind = scene.blind
    if blind is not None and blind.status is Status.FAIL:
        return f"a router; its replicas are NOT known: {blind.why} ({blind.cure})"
    if blind is not None:
        return f"a router; {blind.why}"
    known = [replica.name for replica in scene.replicas]
    return f"a router and {counted(len(known), 'replica')}: {names(known)}" if known else "a router"


def _wrapped(text: str, room: int) -> list[str]:
    whole = _BEFORE_UNIT.sub(_NO_BREAK, text)
    lines = textwrap.wrap(whole, room, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [""]
