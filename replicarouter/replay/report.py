"""Replays side by side: a table for people, a document for programs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from replicarouter.replay.campaign import Run
from replicarouter.replay.figures import Figures

Read = Callable[[Figures], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the table: `read` takes it, `pattern` writes it, `spread` shows the range over seeds."""

    title: str
    read: Read
    pattern: str
    spread: bool = False


UNTIMED_COLUMNS = (
    Column("hits %", lambda one: 100 * one.hit_ratio, "{:.1f}", spread=True),
    Column("known %", lambda one: None if one.recall is None else 100 * one.recall, "{:.1f}"),
    Column("in MiB", lambda one: one.remembered / 2**20 or None, "{:.1f}"),
    Column("uncached max/mean", lambda one: one.uncached_imbalance, "{:.2f}", spread=True),
    Column("requests max/mean", lambda one: one.request_imbalance, "{:.2f}", spread=True),
    Column("replayed /s", lambda one: one.replayed / one.wall if one.wall else None, "{:,.0f}"),
)

TIMED_COLUMNS = (
    Column("good %", lambda one: 100 * one.good_share, "{:.1f}", spread=True),
    Column("goodput /s", lambda one: one.goodput, "{:.2f}"),
    Column("hits %", lambda one: 100 * one.hit_ratio, "{:.1f}"),
    Column("known %", lambda one: None if one.recall is None else 100 * one.recall, "{:.1f}"),
    Column("in MiB", lambda one: one.remembered / 2**20 or None, "{:.1f}"),
    Column("TTFT p50 s", lambda one: one.ttft.p50, "{:.3f}"),
    Column("p90", lambda one: one.ttft.p90, "{:.3f}"),
    Column("p99", lambda one: one.ttft.p99, "{:.3f}"),
    Column("ITL p50 ms", lambda one: _milliseconds(one.itl.p50), "{:.1f}"),
    Column("p90", lambda one: _milliseconds(one.itl.p90), "{:.1f}"),
    Column("p99", lambda one: _milliseconds(one.itl.p99), "{:.1f}"),
    Column("gap p99 ms", lambda one: _milliseconds(one.gap.p99), "{:.1f}"),
    Column("out tok/s", lambda one: one.output_tokens_per_second, "{:,.0f}"),
    Column("uncached max/mean", lambda one: one.uncached_imbalance, "{:.2f}"),
    Column("requests max/mean", lambda one: one.request_imbalance, "{:.2f}"),
    Column("refused %", lambda one: 100 * one.refused_share, "{:.1f}"),
    Column("seconds", lambda one: one.drained, "{:,.0f}"),
    Column("replayed /s", lambda one: one.replayed / one.wall if one.wall else None, "{:,.0f}"),
)


def tables(runs: Sequence[Run], *, timed: bool) -> Iterator[Table]:
    """A table for each load, a row for each policy: means over the seeds, and of some their range."""
    columns = TIMED_COLUMNS if timed else UNTIMED_COLUMNS
    for load, group in groupby(sorted(runs, key=lambda run: run.load), key=lambda run: run.load):
        at_load = list(group)
        seeds = len({run.seed for run in at_load})
        some = f"{at_load[0].figures.requests:,} requests" + (f", {seeds} seeds" if seeds > 1 else "")
        title = f"load {load:g}: {some}" if timed else some
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("policy", no_wrap=True)
        for column in columns:
            table.add_column(column.title, justify="right")
        for policy in dict.fromkeys(run.policy for run in at_load):
            figures = [run.figures for run in at_load if run.policy == policy]
            table.add_row(policy, *(_cell(column, figures) for column in columns))
        yield table


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


def _cell(column: Column, figures: Sequence[Figures]) -> str:
    values = [value for value in map(column.read, figures) if value is not None]
    if not values:
        return "–"
    text = column.pattern.format(fmean(values))
    least, most = column.pattern.format(min(values)), column.pattern.format(max(values))
    return f"{text} ({least}–{most})" if column.spread and least != most else text


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
