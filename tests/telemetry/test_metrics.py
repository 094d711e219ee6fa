"""What an ended exchange adds to counters and histograms."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from replicarouter.cells import Histograms
from replicarouter.telemetry.metrics import MOST_TOKENS, Metrics
from tests.scene import an_exchange

WHOLE: dict[str, Any] = {
    "model": "m1",
    "replica": "a",
    "policy": "round-robin",
    "outcome": "ok",
    "received_at": 1000.5,
    "leased_at": 1001.0,
    "sent_at": 1001.25,
    "head_at": 1001.5,
    "first_content_at": 1002.0,
    "ended_at": 1004.0,
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def totals(histograms: Histograms) -> dict[tuple[str, ...], tuple[int, float]]:
    return {labels: (series.count, series.total) for labels, series in histograms}


def test_an_answered_stream_is_timed_from_end_to_end(metrics: Metrics) -> None:
    metrics.observe(an_exchange(**WHOLE))

    assert totals(metrics.request) == {("/v1/chat/completions", "ok"): (1, 4.0)}
    assert totals(metrics.queue) == {("m1",): (1, 0.5)}
    assert totals(metrics.connect) == {("a",): (1, 0.25)}
    assert dict(metrics.affinity) == {("round-robin", "none"): 1}
    assert not any(count for _, count in metrics.shed)


@pytest.mark.parametrize(
    ("status", "outcome", "kind"),
    [
        (200, "ok", "2xx"),
        (400, "upstream_error", "4xx"),
        (429, "upstream_error", "429"),
        (503, "upstream_error", "5xx"),
        (502, "replica_disconnected", None),
        (200, "client_gone", None),
    ],
)
def test_whole_answers_of_engines_are_counted_by_their_status(
    metrics: Metrics, status: int, outcome: str, kind: str | None
) -> None:
    metrics.observe(an_exchange(**{**WHOLE, "status": status, "outcome": outcome}))
    assert dict(metrics.answers) == ({("a", kind): 1} if kind else {})


def test_the_first_content_is_timed_when_it_comes(metrics: Metrics) -> None:
    metrics.first_content(an_exchange(**WHOLE))

    assert totals(metrics.ttft) == {("m1",): (1, 1.5)}
    assert totals(metrics.upstream_ttft) == {("a",): (1, 1.0)}
    assert totals(metrics.answer_ttft) == totals(metrics.request) == {}


def test_the_first_answer_behind_reasoning_is_timed_on_its_own(metrics: Metrics) -> None:
    metrics.first_answer(an_exchange(**WHOLE, reasoned=True, first_answer_at=1003.5))

    assert totals(metrics.answer_ttft) == {("m1",): (1, 3.0)}
    assert totals(metrics.ttft) == {}


def test_the_end_does_not_time_the_first_content_again(metrics: Metrics) -> None:
    metrics.observe(an_exchange(**WHOLE, reasoned=True, first_answer_at=1003.5))

    assert totals(metrics.ttft) == totals(metrics.upstream_ttft) == totals(metrics.answer_ttft) == {}


def test_what_never_had_a_replica_is_timed_as_a_whole_only(metrics: Metrics) -> None:
    metrics.observe(an_exchange(outcome="model_not_found", ended_at=1000.25))

    assert totals(metrics.request) == {("/v1/chat/completions", "model_not_found"): (1, 0.25)}
    assert totals(metrics.queue) == totals(metrics.connect) == {}
    assert dict(metrics.affinity) == {}


def test_what_never_reached_its_replica_was_not_connected(metrics: Metrics) -> None:
    metrics.observe(
        an_exchange(
            model="m1",
            replica="a",
            outcome="connect_failed",
            received_at=1000.0,
            leased_at=1000.5,
            ended_at=1001.0,
        )
    )

    assert totals(metrics.queue) == {("m1",): (1, 0.5)}
    assert totals(metrics.connect) == totals(metrics.ttft) == {}


def test_paths_that_are_not_relayed_are_not_timed(metrics: Metrics) -> None:
    metrics.observe(an_exchange(endpoint="other", outcome="unknown_path", ended_at=1001.0))
    assert totals(metrics.request) == {}


@pytest.mark.parametrize(
    ("outcome", "shed"),
    [
        ("queue_full", True),
        ("queue_timeout", True),
        ("overloaded", True),
        ("draining", True),
        ("no_replica", False),
        ("ok", False),
        ("client_gone", False),
    ],
)
def test_what_is_refused_for_lack_of_room_is_shed(metrics: Metrics, outcome: str, shed: bool) -> None:
    before = dict(metrics.shed)
    assert set(before.values()) == {0}
    metrics.observe(an_exchange(outcome=outcome, ended_at=1001.0))
    assert dict(metrics.shed) == (before | {(outcome,): 1} if shed else before)


def test_tokens_are_counted_by_model_and_kind(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.observe(an_exchange(**WHOLE, prompt_tokens=10, cached_tokens=4, completion_tokens=3))
    metrics.observe(an_exchange(**{**WHOLE, "model": "m2"}, prompt_tokens=1))

    assert dict(metrics.tokens) == {
        ("m1", "prompt"): 20,
        ("m1", "cached"): 8,
        ("m1", "completion"): 6,
        ("m2", "prompt"): 1,
    }


USAGES = ((0, None, 0), (10, None, 3), (10, 4, 3), (7, 0, 0), (2**63, None, 3), (5, None, -1), (6, None, 2))


@pytest.mark.parametrize("usages", [*permutations(USAGES, 3)])
def test_every_usage_counts_whichever_came_before(
    metrics: Metrics, usages: Sequence[tuple[int, int | None, int]]
) -> None:
    """What is counted once is found the shorter way."""
    expected: Counter[str] = Counter()
    for prompt, cached, completion in (*usages, *usages):
        metrics.observe(
            an_exchange(**WHOLE, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)
        )
        for kind, tokens in (("prompt", prompt), ("cached", cached or 0), ("completion", completion)):
            expected[kind] += tokens if 0 < tokens < MOST_TOKENS else 0
    assert dict(metrics.tokens) == {("m1", kind): count for kind, count in expected.items() if count}


def test_tokens_of_a_model_that_was_folded_are_counted_under_its_name_again(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.observe(an_exchange(**WHOLE, prompt_tokens=10, completion_tokens=3))
    metrics.tokens.fold(0, "m1", "removed")
    metrics.observe(an_exchange(**WHOLE, prompt_tokens=10, completion_tokens=3))
    assert dict(metrics.tokens) == {
        ("removed", "prompt"): 30,
        ("removed", "completion"): 9,
        ("m1", "prompt"): 10,
        ("m1", "completion"): 3,
    }


@pytest.mark.parametrize("tokens", [2**63, -5])
def test_a_count_that_makes_no_sense_is_left_out(metrics: Metrics, tokens: int) -> None:
    metrics.observe(an_exchange(**WHOLE, prompt_tokens=tokens, completion_tokens=3))
    assert dict(metrics.tokens) == {("m1", "completion"): 3}


def test_what_was_folded_is_counted_under_its_name_again(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.observe(an_exchange(**WHOLE, status=200))
    metrics.answers.fold(0, "a", "removed")
    metrics.connect.fold(0, "a", "removed")
    metrics.answers.add(("c", "2xx"))  # It may take the row of the one that is gone.
    for _ in range(2):
        metrics.observe(an_exchange(**WHOLE, status=200))

    assert dict(metrics.answers) == {("removed", "2xx"): 3, ("c", "2xx"): 1, ("a", "2xx"): 2}
    assert totals(metrics.connect) == {("removed",): (3, 0.75), ("a",): (2, 0.5)}
    assert totals(metrics.queue) == {("m1",): (5, 2.5)}
    assert totals(metrics.request) == {("/v1/chat/completions", "ok"): (5, 20.0)}
    assert dict(metrics.affinity) == {("round-robin", "none"): 5}
