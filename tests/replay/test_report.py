"""Replays side by side."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from replicarouter.replay.campaign import Run
from replicarouter.replay.figures import Figures, Percentiles, Slo
from replicarouter.replay.report import document, none_counted, show, too_few
from replicarouter.replay.tally import Tally


def figures(**more: object) -> Figures:
    return replace(Figures.of(Tally(2, requests=40, replayed=50), Slo()), wall=2.0, **more)  # type: ignore[arg-type]


RUNS = [
    Run("round-robin", 1.0, 1, figures(good_share=0.5, hit_ratio=0.1, ttft=Percentiles(0.25, 1.0, 2.0))),
    Run("round-robin", 1.0, 2, figures(good_share=0.7, hit_ratio=0.1, ttft=Percentiles(0.35, 1.0, 2.0))),
    Run("prefix-cache", 1.0, 1, figures(good_share=1.0)),
    Run("prefix-cache", 2.0, 1, figures(good_share=0.25)),
]


def shown(runs: list[Run], *, timed: bool = True, width: int = 260) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, runs, timed=timed)
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
    assert "load 1: 40 of 50 requests counted (once settled), 2 seeds" in text
    assert "load 2: 40 of 50 requests counted (once settled)" in text
    assert line(text, "prefix-cache", 1)[1] == "25.0"


def test_what_was_not_measured_is_a_dash() -> None:
    assert "–" in line(shown(RUNS[2:3]), "prefix-cache")


def test_without_time_there_are_hits_and_balance() -> None:
    text = shown(RUNS[:1], timed=False)
    assert "TTFT" not in text
    assert line(text, "round-robin")[1] == "10.0"


def counting(requests: int, replayed: int, policy: str = "random", seconds: float = 9.0) -> Run:
    return Run(policy, 1.5, 1, figures(requests=requests, replayed=replayed, seconds=seconds))


def test_policies_may_differ_in_what_is_counted() -> None:
    assert "load 1.5: 38–44 of 1,600 requests" in shown([counting(44, 1600), counting(38, 1600, "session")])
    assert shown([counting(60, 60)]).splitlines()[0].strip() == "load 1.5: 60 requests"


@pytest.mark.parametrize(
    ("run", "few"),
    [
        (counting(99, 200), True),
        (counting(100, 200), False),
        (counting(199, 1000), True),
        (counting(200, 1000), False),
        (counting(60, 60), False),  # all that there are
        (counting(300, 400, seconds=0.0), True),
    ],
)
def test_too_few_counted_requests_are_told(run: Run, few: bool) -> None:
    said = too_few([run, counting(900, 1000)])
    assert said == ("load 1.5: too few requests are counted to go by; raise --requests" if few else "")


def test_loads_without_a_counted_request_are_named() -> None:
    said = none_counted([*RUNS, counting(0, 30)])
    assert said.startswith("load 1.5: none of 30 requests is counted in 1 of 5 runs")


@pytest.mark.parametrize("width", [80, 120, 199])
def test_a_narrow_console_has_fewer_columns_and_none_of_them_cut(width: int) -> None:
    long = [counting(40, 50, "least-outstanding"), *RUNS]
    text = shown(long, width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    heads = text.split("─")[0].split()
    assert [word for word in heads if word in {"p50", "p90", "p99"}] == ["p50", "p90", "p50", "p90"]
    assert {"good", "goodput", "hits", "TTFT", "ITL", "uncached", "refused"} <= set(heads)
    assert not {"known", "gap", "out", "seconds"} & set(heads)
    assert text.count("--json or a wider terminal has all") == 1
    assert len(line(text, "least-outstanding")) == 10


def test_a_wide_console_has_all_columns_and_no_note() -> None:
    text = shown(RUNS)
    assert "gap p99 ms" in text
    assert "wider terminal" not in text


def test_a_narrow_console_has_hits_and_balance_of_a_replay_without_time() -> None:
    text = shown(RUNS[:1], timed=False, width=60)
    assert len(line(text, "round-robin")) == 4
    assert "wider terminal" in text


def test_the_document_is_plain_json() -> None:
    page = json.loads(json.dumps(document(RUNS, {"workload": "chat"})))
    assert page["settings"] == {"workload": "chat"}
    assert page["runs"][0]["ttft"] == {"p50": 0.25, "p90": 1.0, "p99": 2.0}
    assert [one["seed"] for one in page["runs"]] == [1, 2, 1, 1]
