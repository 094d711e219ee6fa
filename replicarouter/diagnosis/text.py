"""A diagnosis as text for a terminal of 80 columns."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replicarouter.diagnosis.case import READY, in_flight
from replicarouter.diagnosis.ledger import STAGES
from replicarouter.diagnosis.owners import owner
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.window import Window
from replicarouter.diagnosis.words import counted, length, number, percent, seconds, whole

WIDTH = 80
LONGEST_NAME = 20

_COLUMNS = (
    ("connect", "connecting"),
    ("sent", "sent"),
    ("stream", "streaming"),
    ("running", "running"),
    ("waiting", "waiting"),
    ("unexpl", "unexplained"),
)


def ledger_lines(ledger: Mapping[str, Any], most_rows: int | None = None, *, ago: float = 0.0) -> list[str]:
    """How old it is, the stages beside the engines' counts, then a row for each replica, at most so many.
    `ago`: seconds since the router told it, if it has not answered since."""
    stages = " + ".join(f"{stage} {ledger[stage]:,}" for stage in STAGES)
    engines = ", ".join(f"{name} {_told(ledger[name])}" for name in ("running", "waiting", "unexplained"))
    return [
        f"{f'{length(ago)} ago' if ago else 'now'}{_age(ledger['replicas'])}:",
        *textwrap.wrap(f"in flight {ledger['accepted']:,} = {stages}", WIDTH, subsequent_indent="    "),
        f"engines: {engines}",
        "",
        *_table(ledger["replicas"], most_rows),
    ]


def verdict_lines(window: Window, verdicts: Sequence[Verdict]) -> list[str]:
    """Of what moment the numbers are, unless there is one look only; then each verdict: its title, its
    evidence, and what to do."""
    lines: list[str] = []
    if verdicts and window.rates:
        looked = length(window.seconds) if window.seconds else "window"
        lines += ["", f"over the {looked}, counts in the middle of it:"]
    for place, verdict in enumerate(verdicts, 1):
        lines += ["", *_headline(f"{place}. {verdict.title}", f"[{verdict.code}: {owner(verdict)}]")]
        for evidence in verdict.evidence:
            lines += _indented("   - ", evidence)
        lines += _indented("   change: " if verdict.setting else "   do: ", verdict.cure)
    return lines


def conclusion_lines(window: Window, verdicts: Iterable[Verdict]) -> list[str]:
    """The conclusion for a terminal."""
    return textwrap.wrap(conclusion(window, verdicts), WIDTH, break_on_hyphens=False)


def conclusion(window: Window, verdicts: Iterable[Verdict]) -> str:
    """In one line what limits first, or that nothing does but the engines' own speed."""
    first = next((verdict for verdict in verdicts if verdict.side is not Side.NOTE), None)
    if first is not None:
        act = "Change" if first.setting else "Do"
        return f"{first.title}: {'; '.join(first.evidence[:1])}. {act}: {first.cure}."
    return _idle(window) or _busy(window)


def _idle(window: Window) -> str:
    """What is said where there is little to judge; empty where there is more."""
    present = window.over(in_flight)
    if whole(present.median):
        return ""
    came = window.growth("requests_received_total")
    if came or present.most:
        looked = f" in {length(window.seconds)}" if window.seconds else ""
        found = f"Hardly a request is in flight ({counted(came, 'request')} came{looked}): there is little"
    else:
        found = f"No request is in flight{' and none came' if window.rates else ''}: there is nothing"
    return f"{found} to judge. Only --expect-concurrency judges a client that does not come."


def _busy(window: Window) -> str:
    running = window.course("engine_requests_running").median
    told = f"{number(running)} running" if whole(running) else _in_flight(window)
    ready = window.last.total("replica_state", state=READY)
    found = [f"{told} on {counted(ready, 'replica')}"]
    for name, series in (("ITL", "itl_seconds"), ("TTFT", "ttft_seconds")):
        mean = window.mean(series)
        if mean is not None:
            found.append(f"{name} {seconds(mean.seconds)} in the mean")
    return f"Nothing limits but the engines' own speed: {', '.join(found)}."


def _in_flight(window: Window) -> str:
    """For engines that do not tell what they run."""
    return f"{counted(window.over(in_flight).median, 'request')} in flight"


def _headline(title: str, mark: str) -> list[str]:
    """In one line where that fits."""
    line = f"{title}  {mark}"
    return [line] if len(line) <= WIDTH else [*_indented("", title, hang=3), f"   {mark}"]


def _table(rows: Sequence[Mapping[str, Any]], most_rows: int | None) -> list[str]:
    shown = rows if most_rows is None else rows[:most_rows]
    if not shown:
        return ["no replica"]
    width = min(LONGEST_NAME, max(len("replica"), *(len(row["name"]) for row in shown)))
    head = " ".join(title.rjust(max(5, len(title))) for title, _ in _COLUMNS)
    lines = [f"{'replica':{width}} {'state':9} {head}   KV"]
    for row in shown:
        cells = " ".join(_told(row[key]).rjust(max(5, len(title))) for title, key in _COLUMNS)
        kv = "-" if row["kv_usage"] is None else percent(round(row["kv_usage"], 2))
        lines.append(f"{_short(row['name'], width):{width}} {row['state']:9} {cells} {kv:>4}")
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more")
    return lines


def _age(rows: Iterable[Mapping[str, Any]]) -> str:
    """What is shown of engines is what they said when they were last read."""
    ages = [row["reading_age"] for row in rows if row["running"] is not None and row["reading_age"]]
    return f" (engine counts up to {seconds(max(ages))} old)" if ages else ""


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if abs(value) < 1e6 else f"{value:.1e}"


def _short(name: str, width: int) -> str:
    """The end tells replicas apart: a port, a number."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


def _indented(head: str, text: str, hang: int | None = None) -> list[str]:
    """Lines that go on below the text, or `hang` columns in."""
    indent = " " * (len(head) if hang is None else hang)
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
