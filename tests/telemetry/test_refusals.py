"""Refusals for lack of room are told, and not each of them."""

import logging
from typing import Any

import pytest

from replicarouter.telemetry.refusals import SETTINGS, Refusals
from tests.scene import an_exchange


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.msg == "requests refused"]


@pytest.mark.parametrize("outcome", SETTINGS)
def test_a_refusal_is_told_with_its_reason_and_its_setting(
    outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    Refusals().observe(an_exchange(outcome=outcome, model="m1", ended_at=1001.0))
    (line,) = told(caplog)
    assert (line["levelno"], line["reason"], line["model"], line["count"]) == (
        logging.WARNING,
        outcome,
        "m1",
        1,
    )
    assert line.get("setting", "") == SETTINGS[outcome]


def test_many_of_one_kind_are_one_line_that_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for second in range(12):
        refusals.observe(an_exchange(outcome="queue_full", ended_at=1000.0 + second))
    refusals.observe(an_exchange(outcome="queue_timeout", ended_at=1011.0))
    assert [(line["reason"], line["count"]) for line in told(caplog)] == [
        ("queue_full", 1),
        ("queue_full", 10),
        ("queue_timeout", 1),
    ]


@pytest.mark.parametrize("outcome", ["ok", "client_gone", "upstream_error"])
def test_other_endings_are_no_refusals(outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    Refusals().observe(an_exchange(outcome=outcome))
    assert told(caplog) == []
