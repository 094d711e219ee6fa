"""One line for each exchange."""

import logging
from typing import Any

import pytest

from replicarouter.exchange import Stage
from replicarouter.telemetry.access_log import log_exchange
from tests.scene import an_exchange


def logged(caplog: pytest.LogCaptureFixture, **fields: Any) -> dict[str, Any]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_exchange(an_exchange(**fields))
    (record,) = caplog.records
    return record.__dict__


def test_a_line_says_who_asked_what_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    facts = logged(
        caplog,
        client_id="c1",
        model="m1",
        replica="a",
        status=200,
        outcome="client_gone",
        stage=Stage.STREAMING,
        ended_at=1001.23456,
        bytes_in=3,
        bytes_out=4,
        attempts=2,
    )

    assert facts["msg"] == "request"
    expected = {
        "request_id": "c1",
        "endpoint": "/v1/chat/completions",
        "model": "m1",
        "replica": "a",
        "status": 200,
        "outcome": "client_gone@streaming",
        "seconds": 1.2346,
        "bytes_in": 3,
        "bytes_out": 4,
        "attempts": 2,
    }
    assert {key: facts[key] for key in expected} == expected


def test_a_long_request_id_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    assert len(logged(caplog, client_id="x" * 60_000)["request_id"]) == 200


def test_a_quiet_log_has_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_exchange(an_exchange())
    assert caplog.records == []
