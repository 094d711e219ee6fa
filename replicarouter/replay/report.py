"""Replays side by side: a table for people, a document for programs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from replicarouter.replay.campaign import Run
from replicarouter.replay.figures import Figures

Read = Callable[[Figures], float | None]

FEWEST, FEWEST_SHARE = 100, 0.2
"""Counted requests, and their share of all, below which figures are not to be gone by."""

UNBOUNDED = 10_000
"""Columns in which every table has room."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the table: `read` takes it, `pattern` writes it, `spread` shows the range over seeds
    where there is room, and `brief` columns are shown where there is little."""

    title: str
    read: Read
    pattern: str
    spread: bool = False
    brief: bool = False


UNTIMED_COLUMNS = (
    Column("hits %", lambda one: 100 * one.hit_ratio, "{:.1f}", spread=True, brief=True),
    Column("known %", lambda one: None if one.recall is None else 100 * one.recall, "{:.1f}"),
    Column("in MiB", lambda one: one.remembered / 2**20 or None, "{:.1f}"),
    Column("uncached max/mean", lambda one: one.uncached_imbalance, "{:.2f}", spread=True, brief=True),
    Column("requests max/mean", lambda one: one.request_imbalance, "{:.2f}", spread=True, brief=True),
    Column("replayed /s", lambda one: one.replayed / one.wall if one.wall else None, "{:,.0f}"),
)

TIMED_COLUMNS = (
    Column("good %", lambda one: 100 * one.good_share, "{:.1f}", spread=True, brief=True),
    Column("goodput /s", lambda one: one.goodput, "{:.2f}", brief=True),
    Column("hits %", lambda one: 100 * one.hit_ratio, "{:.1f}", brief=True),
    Column("known %", lambda one: None if one.recall is None else 100 * one.recall, "{:.1f}"),
    Column("in MiB", lambda one: one.remembered / 2**20 or None, "{:.1f}"),
    Column("TTFT p50 s", lambda one: one.ttft.p50, "{:.3f}", brief=True),
    Column("p90", lambda one: one.ttft.p90, "{:.3f}", brief=True),
    Column("p99", lambda one: one.ttft.p99, "{:.3f}"),
    Column("ITL p50 ms", lambda one: _milliseconds(one.itl.p50), "{:.1f}", brief=True),
    Column("p90", lambda one: _milliseconds(one.itl.p90), "{:.1f}", brief=True),
    Column("p99", lambda one: _milliseconds(one.itl.p99), "{:.1f}"),
    Column("gap p99 ms", lambda one: _milliseconds(one.gap.p99), "{:.1f}"),
    Column("out tok/s", lambda one: one.output_tokens_per_second, "{:,.0f}"),
    Column("uncached max/mean", lambda one: one.uncached_imbalance, "{:.2f}", brief=True),
    Column("requests max/mean", lambda one: one.request_imbalance, "{:.2f}"),
    Column("refused %", lambda one: 100 * one.refused_share, "{:.1f}", brief=True),
    Column("seconds", lambda one: one.drained, "{:,.0f}"),
    Column("replayed /s", lambda one: one.replayed / one.wall if one.wall else None, "{:,.0f}"),
)


def show(console: Console, runs: Sequence[Run], *, timed: bool) -> None:
    """Print a table for each load; with the most telling columns alone where the console is too narrow."""
    whole = list(tables(runs, timed=timed))
    unbounded = console.options.update(width=UNBOUNDED)
    narrow = any(console.measure(table, options=unbounded).maximum > console.width for table in whole)
    for table in tables(runs, timed=timed, brief=True) if narrow else whole:
        console.print(table)
    if narrow:
        console.print(
            "There are more columns: --json or a wider terminal has all.", style="dim", highlight=False
        )


def tables(runs: Sequence[Run], *, timed: bool, brief: bool = False) -> Iterator[Table]:
    """A table for each load, a row for each policy: means over the seeds, and of some their range."""
    columns: Sequence[Column] = TIMED_COLUMNS if timed else UNTIMED_COLUMNS
    if brief:
        columns = tuple(replace(column, spread=False) for column in columns if column.brief)
    for load, at_load in _by_load(runs):
        seeds = len({run.seed for run in at_load})
        some = _counted(at_load) + (f", {seeds} seeds" if seeds > 1 else "")
        table = _empty_table(f"load {load:g}: {some}" if timed else some, columns, brief=brief)
        for policy in dict.fromkeys(run.policy for run in at_load):
            figures = [run.figures for run in at_load if run.policy == policy]
            table.add_row(policy, *(_cell(column, figures) for column in columns))
        yield table


def too_few(runs: Sequence[Run]) -> str:
    """What to say of loads with too few counted requests to go by; empty when there are enough."""
    loads = [f"{load:g}" for load, at_load in _by_load(runs) if any(_are_few(run.figures) for run in at_load)]
    return (
        f"load {', '.join(loads)}: too few requests are counted to go by; raise --requests" if loads else ""
    )


def none_counted(runs: Sequence[Run]) -> str:
    """What to say when there are runs without a counted request."""
    empty = [run for run in runs if not run.figures.requests]
    loads = ", ".join(f"{load:g}" for load, _ in _by_load(empty))
    return (
        f"load {loads}: none of {empty[0].figures.replayed:,} requests is counted in {len(empty)} of "
        f"{len(runs)} runs, as none came after "
        "the load had settled and before the last conversation began; raise --requests"
    )


def document(runs: Sequence[Run], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything as plain values: `settings` says what was replayed, `runs` has the figures of each run;
    times are in seconds."""
    return {
        "settings": settings,
        "runs": [
            {"policy": run.policy, "load": run.load, "seed": run.seed, **run.figures.as_dict()}
            for run in runs
        ],
    }


def _empty_table(title: str, columns: Sequence[Column], *, brief: bool) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    if brief:
        table.padding, table.show_edge = 0, False
    table.add_column("policy", no_wrap=True, vertical="bottom")
    for column in columns:
        # Only so are heads broken between words alone.
        head = column.title.replace(" ", "\n", 1) if brief else column.title
        table.add_column(head, justify="right")
    return table


def _by_load(runs: Sequence[Run]) -> Iterator[tuple[float, list[Run]]]:
    for load, group in groupby(sorted(runs, key=lambda run: run.load), key=lambda run: run.load):
        yield load, list(group)


def _counted(runs: Sequence[Run]) -> str:
    """How many requests count, and of how many; policies may differ in that, and seeds."""
    counts = [run.figures.requests for run in runs]
    replayed = max(run.figures.replayed for run in runs)
    least, most = f"{min(counts):,}", f"{max(counts):,}"
    some = least if least == most else f"{least}–{most}"
    if min(counts) == replayed:
        return f"{some} requests"
    return f"{some} of {replayed:,} requests counted (once settled)"


def _are_few(figures: Figures) -> bool:
    if figures.requests == figures.replayed:
        return False
    least = max(FEWEST, figures.replayed * FEWEST_SHARE)
    return figures.requests < least or figures.seconds <= 0


def _cell(column: Column, figures: Sequence[Figures]) -> str:
    values = [value for value in map(column.read, figures) if value is not None]
    if not values:
        return "–"
    text = column.pattern.format(fmean(values))
    least, most = column.pattern.format(min(values)), column.pattern.format(max(values))
    return f"{text} ({least}–{most})" if column.spread and least != most else text


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
