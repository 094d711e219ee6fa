"""Replays side by side."""

import io
import json
from dataclasses import replace

from rich.console import Console

from replicarouter.replay.campaign import Run
from replicarouter.replay.figures import Figures, Percentiles, Slo
from replicarouter.replay.report import document, tables
from replicarouter.replay.tally import Tally


def figures(**more: object) -> Figures:
    return replace(Figures.of(Tally(2, requests=40, replayed=50), Slo()), wall=2.0, **more)  # type: ignore[arg-type]


RUNS = [
    Run("round-robin", 1.0, 1, figures(good_share=0.5, hit_ratio=0.1, ttft=Percentiles(0.25, 1.0, 2.0))),
    Run("round-robin", 1.0, 2, figures(good_share=0.7, hit_ratio=0.1, ttft=Percentiles(0.35, 1.0, 2.0))),
    Run("prefix-cache", 1.0, 1, figures(good_share=1.0)),
    Run("prefix-cache", 2.0, 1, figures(good_share=0.25)),
]


def shown(runs: list[Run], *, timed: bool = True) -> str:
    console = Console(file=io.StringIO(), width=260)
    for table in tables(runs, timed=timed):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def line(text: str, start: str, occurrence: int = 0) -> list[str]:
    lines = [one.split() for one in text.splitlines() if one.strip().startswith(start)]
    return lines[occurrence]


def test_a_row_has_the_mean_over_the_seeds_and_their_range() -> None:
    row = line(shown(RUNS), "round-robin")
    assert row[1:3] == ["60.0", "(50.0–70.0)"]
    assert "0.300" in row
    assert row[-1] == "25"


def test_each_load_has_a_table() -> None:
    text = shown(RUNS)
    assert "load 1: 40 requests, 2 seeds" in text
    assert "load 2: 40 requests" in text
    assert line(text, "prefix-cache", 1)[1] == "25.0"


def test_what_was_not_measured_is_a_dash() -> None:
    assert "–" in line(shown(RUNS[2:3]), "prefix-cache")


def test_without_time_there_are_hits_and_balance() -> None:
    text = shown(RUNS[:1], timed=False)
    assert "TTFT" not in text
    assert line(text, "round-robin")[1] == "10.0"


def test_the_document_is_plain_json() -> None:
    page = json.loads(json.dumps(document(RUNS, {"workload": "chat"})))
    assert page["settings"] == {"workload": "chat"}
    assert page["runs"][0]["ttft"] == {"p50": 0.25, "p90": 1.0, "p99": 2.0}
    assert [one["seed"] for one in page["runs"]] == [1, 2, 1, 1]
