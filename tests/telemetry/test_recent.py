"""The latest failures: which are remembered, in which order, and what is left out."""

import pytest

from replicarouter.exchange import CLIENT_GONE, OK, Stage
from replicarouter.telemetry.recent import KEPT, LONGEST, RecentErrors
from tests.scene import an_exchange


def test_a_failure_is_told_with_where_and_when_it_happened() -> None:
    recent = RecentErrors()
    recent.observe(
        an_exchange(
            client_id="req-1",
            outcome="idle_timeout",
            stage=Stage.STREAMING,
            status=200,
            replica="a",
            model="m1",
            attempts=2,
            ended_at=1003.0,
        )
    )
    assert recent.failures(1010.0) == [
        {
            "request_id": "req-1",
            "age": 7.0,
            "seconds": 3.0,
            "endpoint": "/v1/chat/completions",
            "model": "m1",
            "replica": "a",
            "status": 200,
            "outcome": "idle_timeout@streaming",
            "stage": "streaming",
            "attempts": 2,
        }
    ]


def test_what_was_asked_for_in_vain_is_told() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome="model_not_found", model="other", asked_model="no-such\udcff"))
    recent.observe(an_exchange(outcome="unknown_path", endpoint="other", path="/v1/" + "x" * 60_000))
    path, model = recent.failures(1.0)
    assert (model["model"], model["asked_model"], "path" in model) == ("other", "no-such?", False)
    assert (path["endpoint"], path["path"], "asked_model" in path) == ("other", "/v1/" + "x" * 96, False)


def test_success_is_not_remembered() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome=OK))
    assert recent.failures(1.0) == recent.departures(1.0) == []
    assert recent.departed(1.0) == {"count": 0, "stages": {}, "last": None}


def test_a_request_that_had_no_replica_and_no_answer_says_so() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome=CLIENT_GONE, stage=Stage.QUEUED))
    (row,) = recent.departures(2000.0)
    assert (row["replica"], row["status"], row["outcome"]) == (None, None, "client_gone@queued")


def test_the_latest_come_first_failures_and_departures_apart() -> None:
    recent = RecentErrors()
    for second, outcome in enumerate(("queue_full", CLIENT_GONE, "connect_failed", CLIENT_GONE)):
        recent.observe(an_exchange(outcome=outcome, ended_at=1000.0 + second))
    assert [row["age"] for row in recent.failures(1003.0)] == [1.0, 3.0]
    assert [row["age"] for row in recent.failures(1003.0, 1)] == [1.0]
    assert [row["age"] for row in recent.departures(1003.0)] == [0.0, 2.0]


@pytest.mark.parametrize("outcome", ["queue_timeout", CLIENT_GONE])
def test_a_wave_is_bounded_and_leaves_those_of_the_other_kind(outcome: str) -> None:
    recent = RecentErrors()
    other = "connect_failed" if outcome == CLIENT_GONE else CLIENT_GONE
    recent.observe(an_exchange(outcome=other, ended_at=1000.0))
    for second in range(3 * KEPT):
        recent.observe(an_exchange(outcome=outcome, ended_at=1001.0 + second))
    many, one = recent.failures(2000.0), recent.departures(2000.0)
    if outcome == CLIENT_GONE:
        many, one = one, many
    assert len(many) == KEPT
    assert [row["outcome"] for row in one] == [f"{other}@receiving"]
    assert many[0]["age"] == 2000.0 - (1000.0 + 3 * KEPT)


def test_all_that_left_are_counted_by_their_stage() -> None:
    recent = RecentErrors()
    for second in range(2 * KEPT):
        stage = Stage.QUEUED if second < 10 else Stage.STREAMING
        recent.observe(an_exchange(outcome=CLIENT_GONE, stage=stage, replica="a", ended_at=1001.0 + second))
    recent.observe(an_exchange(outcome="connect_failed", ended_at=1500.0))
    departed = recent.departed(1010.0 + 2 * KEPT)
    assert departed["count"] == 2 * KEPT
    assert departed["stages"] == {"streaming": 2 * KEPT - 10, "queued": 10}
    last = departed["last"]
    assert (last["age"], last["stage"], last["replica"]) == (10.0, "streaming", "a")


def test_what_clients_write_is_cut_and_can_be_written_as_json() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome="bad", client_id="x" * 10 * LONGEST, model="\udcff"))
    (row,) = recent.failures(1.0)
    assert row["request_id"] == "x" * LONGEST
    assert row["model"] == "?"
