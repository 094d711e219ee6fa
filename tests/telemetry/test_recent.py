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
    assert recent.rows(1010.0) == [
        {
            "request_id": "req-1",
            "age": 7.0,
            "seconds": 3.0,
            "endpoint": "/v1/chat/completions",
            "model": "m1",
            "replica": "a",
            "status": 200,
            "outcome": "idle_timeout@streaming",
            "attempts": 2,
        }
    ]


def test_success_is_not_remembered() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome=OK))
    assert recent.rows(1.0) == []


def test_a_request_that_had_no_replica_and_no_answer_says_so() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome=CLIENT_GONE, stage=Stage.QUEUED))
    (row,) = recent.rows(2000.0)
    assert (row["replica"], row["status"], row["outcome"]) == (None, None, "client_gone@queued")


def test_the_latest_come_first_whatever_their_kind() -> None:
    recent = RecentErrors()
    for second, outcome in enumerate(("queue_full", CLIENT_GONE, "connect_failed", CLIENT_GONE)):
        recent.observe(an_exchange(outcome=outcome, ended_at=1000.0 + second))
    assert [row["age"] for row in recent.rows(1003.0)] == [0.0, 1.0, 2.0, 3.0]
    assert [row["age"] for row in recent.rows(1003.0, 2)] == [0.0, 1.0]


@pytest.mark.parametrize("outcome", ["queue_timeout", CLIENT_GONE])
def test_a_wave_is_bounded_and_leaves_failures_of_the_other_kind(outcome: str) -> None:
    recent = RecentErrors()
    other = "connect_failed" if outcome == CLIENT_GONE else CLIENT_GONE
    recent.observe(an_exchange(outcome=other, ended_at=1000.0))
    for second in range(3 * KEPT):
        recent.observe(an_exchange(outcome=outcome, ended_at=1001.0 + second))
    rows = recent.rows(2000.0)
    assert len(rows) == KEPT + 1
    assert rows[-1]["outcome"].startswith(other)
    assert rows[0]["age"] == 2000.0 - (1000.0 + 3 * KEPT)


def test_what_clients_write_is_cut_and_can_be_written_as_json() -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome="bad", client_id="x" * 10 * LONGEST, model="\udcff"))
    (row,) = recent.rows(1.0)
    assert row["request_id"] == "x" * LONGEST
    assert row["model"] == "?"
