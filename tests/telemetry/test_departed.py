"""Counters of replicas that have left: kept, and bounded."""

from replicarouter.telemetry.departed import MOST_NAMES, REMOVED, Departed
from tests.scene import replica_settings
from tests.telemetry.conftest import Watched

CHAT = "/v1/chat/completions"


def come_and_go(watched: Watched, name: str) -> None:
    """A replica joins, answers one request, fails one, is ejected once and leaves."""
    fleet, metrics = watched.fleet, watched.metrics
    ledger = fleet.ledger
    replica = fleet.add(replica_settings(name))
    ledger.finished.add((CHAT, "m1", name, "ok"))
    ledger.attempts.add((name, "ok"))
    ledger.attempts.add((name, "connect_failed"))
    ledger.ejections.add((name, "http_500"))
    metrics.answers.add((name, "2xx"), 3)
    metrics.routed_characters.add(("prefix-cache", name), 100)
    for histograms in (metrics.connect, metrics.upstream_ttft, metrics.gaps):
        histograms.of((name,)).observe(0.01)
    fleet.remove(replica)


def names(watched: Watched, metric: str) -> set[str]:
    return {
        sample.labels["replica"]
        for family in watched.families().values()
        for sample in family.samples
        if sample.name == f"replicarouter_{metric}"
    }


COUNTED = {
    "requests_total": 1,
    "attempts_total": 2,
    "ejections_total": 1,
    "answers_total": 3,
    "routed_characters_total": 100,
    "connect_seconds_count": 1,
    "upstream_ttft_seconds_count": 1,
    "itl_seconds_count": 1,
}


def departing(watched: Watched) -> Watched:
    watched.fleet.listeners.append(Departed(watched.fleet.ledger, watched.metrics))
    return watched


def test_what_a_replica_counted_outlives_it_and_its_gauges_do_not(watched: Watched) -> None:
    come_and_go(departing(watched), "x")
    for metric in COUNTED:
        assert "x" in names(watched, metric), metric
    for metric in ("requests_outstanding", "replica_state", "replica_weight", "connector_connections"):
        assert names(watched, metric) == {"a", "b"}, metric


def test_beyond_so_many_names_the_oldest_are_counted_together(watched: Watched) -> None:
    departing(watched)
    for number in range(MOST_NAMES + 3):
        come_and_go(watched, f"n{number}")

    for metric, each in COUNTED.items():
        found = names(watched, metric)
        assert len(found) == MOST_NAMES + 1, metric
        assert {REMOVED, "n3", f"n{MOST_NAMES + 2}"} <= found
        assert not {"n0", "n1", "n2"} & found
        assert sum(watched.samples(metric).values()) == each * (MOST_NAMES + 3), metric


def test_a_name_that_is_in_use_again_is_not_counted_with_others(watched: Watched) -> None:
    departing(watched)
    come_and_go(watched, "back")
    watched.fleet.add(replica_settings("back"))
    for number in range(MOST_NAMES + 1):
        come_and_go(watched, f"n{number}")

    assert "back" in names(watched, "attempts_total")
    assert watched.samples("attempts_total")["back", "ok"] == 1
