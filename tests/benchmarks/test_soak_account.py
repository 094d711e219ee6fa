"""The account of a soak finds what does not add up."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak_account import Report, Sample, account
from benchmarks.soak_fleet import Replica
from benchmarks.soak_users import Tally


def report(
    client: dict[str, int], router: dict[str, int], *, begun: int | None = None, **rest: Any
) -> Report:
    tally = Tally(outcomes=client, begun=sum(client.values()) if begun is None else begun)
    arguments: dict[str, Any] = {"replicas": (), "did": {}, "rest": {}, "samples": (), **rest}
    return account(tally=tally, outcomes=router, **arguments)


def found(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.zero.items() if count}


@pytest.mark.parametrize(
    ("client", "router"),
    [
        ({"ok": 5}, {"ok": 5}),
        ({"ok": 5, "client_gone": 2}, {"ok": 6, "client_gone": 1}),
        ({"ok": 5, "client_gone": 2}, {"ok": 5}),
        ({"ok": 5, "cut": 1}, {"ok": 5, "replica_disconnected": 1}),
        ({"ok": 5, "idle_timeout": 1}, {"ok": 5, "idle_timeout": 1}),
    ],
)
def test_stories_that_agree_are_sound(client: dict[str, int], router: dict[str, int]) -> None:
    assert report(client, router).sound


@pytest.mark.parametrize(
    ("client", "router", "wrong"),
    [
        ({"ok": 5}, {"ok": 4}, "seen by clients and not counted by the router"),
        ({"idle_timeout": 1}, {"ok": 1}, "seen by clients and not counted by the router"),
        ({"ok": 5}, {"ok": 5, "internal_error": 1}, "counted by the router and not seen by clients"),
        ({"ok": 5, "cut": 1}, {"ok": 6}, "cut answers that are not counted as failures"),
        ({"ok": 5, "cut": 2}, {"ok": 5, "client_gone": 1}, "requests without an outcome"),
        ({"ok": 5}, {"ok": 6}, "outcomes without a request"),
        ({"ok": 5, "lost": 1}, {"ok": 5, "replica_disconnected": 1}, "lost"),
        ({"ok": 5, "mixed": 1}, {"ok": 6}, "mixed"),
        ({"ok": 5, "hung": 1}, {"ok": 5, "idle_timeout": 1}, "hung"),
    ],
)
def test_what_does_not_add_up_is_named(client: dict[str, int], router: dict[str, int], wrong: str) -> None:
    assert found(report(client, router))[wrong] >= 1


def replica(folder: Path, port: int, *lines: str) -> Replica:
    made = Replica(folder, port, 0, ())
    made.journal.write_text("".join(f"{line}\n" for line in lines))
    return made


def test_request_that_ran_twice_is_doubled(tmp_path: Path) -> None:
    one = replica(
        tmp_path, 1, "10.0 1 received a", "10.0 1 started a", "11.0 1 started b", "11.1 1 finished b"
    )
    two = replica(tmp_path, 2, "15.0 2 received a", "15.0 2 started a", "15.0 2 received b")
    seen = report({"ok": 2}, {"ok": 2}, replicas=[one, two])
    assert found(seen) == {"doubled": 1}
    assert seen.examples["doubled"][0].startswith("a: ")


def test_same_engine_counts_as_twice_too(tmp_path: Path) -> None:
    one = replica(tmp_path, 1, "10.0 1 started a", "10.5 1 started a")
    assert found(report({"ok": 1}, {"ok": 1}, replicas=[one])) == {"doubled": 1}


@pytest.mark.parametrize(("step", "sound"), [(0, True), (10_000, True), (80_000, False)])
def test_growth_is_judged_over_minutes(step: int, sound: bool) -> None:
    samples = [Sample(float(second), 2**26 + second * step, 40) for second in range(300)]
    seen = report({"ok": 1}, {"ok": 1}, samples=samples)
    assert seen.sound is sound
    assert seen.facts["growth, MiB a minute"] == pytest.approx(step * 60 / 2**20, abs=0.01)
    assert report({"ok": 1}, {"ok": 1}, samples=samples[:100]).sound, "too short to tell"


def test_what_is_left_at_the_end_is_wrong() -> None:
    assert not report({"ok": 1}, {"ok": 1}, rest={"unsettled sent": 1}).sound


def test_table_shows_both_sides() -> None:
    table = report({"ok": 5, "cut": 1}, {"ok": 5, "replica_disconnected": 1}).table()
    assert "| ok | 5 | 5 |" in table
    assert "| replica_disconnected | 0 | 1 |" in table
    assert "| lost | 0 |" in table
