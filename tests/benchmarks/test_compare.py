"""What a comparison makes of its measurements, and who takes part in it."""

from math import isclose
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cores import Cores
from benchmarks.cores import parse as parse_cores
from benchmarks.entrants import Entrant, parse
from benchmarks.measure import Measurement
from benchmarks.pairs import differences, ratios
from benchmarks.proxies import PROXIES, Place, Tools, launch
from benchmarks.report import summary, tables
from benchmarks.scaling import PER_WORKER, ladders, relative
from benchmarks.scenarios import SCENARIOS
from benchmarks.times import buckets, merged, percentiles

PROGRAMS = {name: f"/opt/{name}/bin/{name}" for name in PROXIES}


def measured(proxy: str, cpu: float, **more: Any) -> Measurement:
    """A thousand chunks of a second, at so many seconds of CPU time."""
    facts: dict[str, Any] = {"units": 1000, "seconds": 1.0, "user": cpu, "reads": 1000, "users": 256}
    return Measurement(proxy, more.pop("scenario", "paced20k"), "chunk", **{**facts, **more})


@pytest.mark.parametrize(
    ("label", "entrant"),
    [
        ("nginx", Entrant("nginx")),
        ("nginx:workers=2", Entrant("nginx", workers=2)),
        ("replicarouter:prefix-hash", Entrant("replicarouter", policy="prefix-hash")),
        (
            "replicarouter:workers=4+session+scrape-interval=5",
            Entrant("replicarouter", 4, "session", (("scrape-interval", "5"),)),
        ),
    ],
)
def test_a_label_names_an_entrant_and_an_entrant_its_label(label: str, entrant: Entrant) -> None:
    assert parse(label) == entrant
    assert entrant.label == label


@pytest.mark.parametrize("label", ["nginx:workers=two", "nginx:worker=2", "haproxy:roundrobin+threads=3"])
def test_an_option_that_a_proxy_does_not_have_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match=r"nothing else|invalid literal"):
        parse(label)


@pytest.mark.parametrize("proxy", PROXIES)
def test_every_proxy_is_told_its_port_and_all_replicas(proxy: str, tmp_path: Path) -> None:
    tools = Tools(python="python", before="python", programs=PROGRAMS)
    place = Place(18080, [19001, 19002, 19003], tmp_path)
    started = launch(parse(f"{proxy}:workers=2"), tools, place)
    told = " ".join([*started.command, *started.files.values()])
    assert all(port in told for port in ("18080", "19001", "19002", "19003"))
    assert all((tmp_path / name).read_text() == text for name, text in started.files.items())
    assert "$" not in told


def test_ratios_are_paired_within_a_repetition_and_leave_out_what_fell_behind() -> None:
    found = ratios(
        [
            measured("nginx", 0.010, repetition=0),
            measured("replicarouter", 0.012, repetition=0),
            measured("nginx", 0.020, repetition=1),
            measured("replicarouter", 0.020, repetition=1),
            measured("replicarouter:workers=2", 0.030, repetition=1, workers=2),
            measured("nginx", 0.010, repetition=2, offered=2000.0),
            measured("replicarouter", 0.001, repetition=2),
        ]
    )
    assert found == {"paced20k": {"replicarouter": {"nginx": [1.2, 1.0]}}}


def test_proxies_are_compared_with_those_of_as_many_workers() -> None:
    found = ratios(
        [
            measured("nginx", 0.010),
            measured("nginx:workers=2", 0.020, workers=2),
            measured("replicarouter:workers=2", 0.030, workers=2),
        ]
    )
    assert found == {"paced20k": {"replicarouter:workers=2": {"nginx": [1.5]}}}


def test_latency_is_what_comes_on_top_of_nginx_and_of_no_proxy() -> None:
    times = {"p50": 1.0, "p99": 2.0}
    found = differences(
        [
            measured("direct", 0.0, ttft=times, itl=times),
            measured("nginx", 0.01, ttft={"p50": 1.5, "p99": 3.0}, itl=times),
            measured("replicarouter", 0.01, ttft={"p50": 1.75, "p99": 4.0}, itl=times),
        ]
    )
    added = found["paced20k"]["replicarouter"]
    assert added["nginx"]["ttft p50"] == [0.25]
    assert added["direct"]["ttft p99"] == [2.0]
    assert "direct" not in found["paced20k"]


def test_percentiles_of_several_clients_are_those_of_all_their_times() -> None:
    times = [1_000_000 * count for count in range(1, 1001)]
    parts = [{str(key): count for key, count in buckets(times[start::3]).items()} for start in range(3)]
    found = percentiles(merged(parts))
    assert found is not None
    assert isclose(found["p50"], 501, rel_tol=0.001)
    assert isclose(found["p99"], 991, rel_tol=0.001)
    assert isclose(found["max"], 1000, rel_tol=0.001)
    assert percentiles(merged([])) is None


def test_the_tables_tell_of_every_scenario() -> None:
    found = [
        measured(proxy, 0.01, scenario=name, users=users, offered=1000.0, **_held(name))
        for name, scenario in SCENARIOS.items()
        for users in scenario.users
        for proxy in ("nginx", "replicarouter")
    ]
    text = summary(found) + tables(found)
    assert all(f"### {name}" in text for name in SCENARIOS)
    assert "never (to 2000)" in text


def _held(scenario: str) -> dict[str, int]:
    held = SCENARIOS[scenario].hold
    return {"held": 8, "rss_before": 2**20, "rss": 2**21} if held else {}


def test_workers_are_compared_with_one_worker_of_the_same_repetition() -> None:
    found = [
        measured(
            f"replicarouter:workers={workers}" if workers > 1 else "replicarouter",
            0.02,
            scenario="scaling",
            workers=workers,
            users=streams * workers,
            units=1000 * workers,
            reads=1000 * workers,
        )
        for workers in (1, 2)
        for streams in PER_WORKER
    ]
    every = ladders(found)
    against = relative(every["replicarouter:workers=2"], every)
    assert against == {"carried": [2.0], "sustained": [2.0], "cpu_us": [0.5]}


def test_what_comes_in_lumps_is_carried_once_a_lump() -> None:
    lumps = [
        measured("nginx", 0.02, scenario="scaling", users=streams, units=1000, reads=500)
        for streams in PER_WORKER
    ]
    ladder = ladders(lumps)["nginx"][0]
    assert (ladder.carried, ladder.sustained) == (500.0, 0.0)


def test_cores_are_read_as_taskset_reads_them() -> None:
    assert parse_cores("0-2,8") == [0, 1, 2, 8]
    assert Cores([0, 1], [1, 2]).overlap
    assert not Cores([0], [1]).overlap
