"""One line for each exchange."""

import json
import logging
from typing import Any

import pytest

from replicarouter.exchange import PastAttempt, Stage
from replicarouter.protocol.traceparent import Trace
from replicarouter.telemetry.access_log import AccessLog, facts_of
from replicarouter.telemetry.logs import FactsRecord, JsonFormatter, TextFormatter
from tests.scene import an_exchange

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

ANSWERED: dict[str, Any] = {
    "client_id": "c1",
    "upstream_id": "c1",
    "caller": "team-a",
    "peer": "10.0.0.9",
    "model": "m1",
    "replica": "a",
    "status": 200,
    "outcome": "ok",
    "stage": Stage.STREAMING,
    "policy": "session",
    "affinity": "hit",
    "received_at": 1000.5,
    "leased_at": 1000.75,
    "sent_at": 1001.0,
    "head_at": 1003.0,
    "first_content_at": 1003.25,
    "ended_at": 1010.12346,
    "prompt_tokens": 30,
    "cached_tokens": 16,
    "completion_tokens": 7,
    "bytes_in": 3,
    "bytes_out": 4,
    "attempts": 1,
    "trace": Trace(TRACE),
}

TIMES = ("receive", "queue", "retry", "connect", "head", "stream")


def facts(**fields: Any) -> dict[str, Any]:
    return facts_of(an_exchange(**{**ANSWERED, **fields}))


def lines(log: AccessLog, caplog: pytest.LogCaptureFixture, **fields: Any) -> list[logging.LogRecord]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log.observe(an_exchange(**{**ANSWERED, **fields}))
    return list(caplog.records)


def test_a_line_says_who_asked_what_and_how_it_went() -> None:
    assert facts() == {
        "request_id": "c1",
        "caller": "team-a",
        "peer": "10.0.0.9",
        "method": "POST",
        "endpoint": "/v1/chat/completions",
        "model": "m1",
        "replica": "a",
        "status": 200,
        "outcome": "ok@streaming",
        "policy": "session",
        "affinity": "hit",
        "attempts": 1,
        "seconds": 10.1235,
        "receive": 0.5,
        "queue": 0.25,
        "connect": 0.25,
        "head": 2.0,
        "stream": 7.1235,
        "first_content": 2.25,
        "prompt_tokens": 30,
        "cached_tokens": 16,
        "completion_tokens": 7,
        "bytes_in": 3,
        "bytes_out": 4,
        "trace_id": TRACE,
    }


def test_what_does_not_apply_is_left_out() -> None:
    refused = facts_of(an_exchange(caller="10.0.0.9", peer="10.0.0.9", upstream_id="c", outcome="draining"))
    assert set(refused) == {
        *("request_id", "caller", "method", "endpoint", "model", "replica", "status", "outcome", "attempts"),
        *("seconds", "receive", "bytes_in", "bytes_out"),
    }


def test_the_replicas_id_is_named_where_it_is_another() -> None:
    assert facts(upstream_id="c1-7")["upstream_id"] == "c1-7"


PAST = (PastAttempt("b", "connect_failed", 1000.6, 0.0, 1000.7),)
ENDINGS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no-content-seen": {"first_content_at": 0.0},
    "sent": {"head_at": 0.0, "first_content_at": 0.0},
    "connecting": {"sent_at": 0.0, "head_at": 0.0},
    "queued": {"leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0, "attempts": 0},
    "receiving": {"received_at": 0.0, "leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0, "attempts": 0},
    "retried": {"past": PAST, "attempts": 2},
    "gave-up": {"past": PAST, "leased_at": 1000.6, "sent_at": 0.0, "head_at": 0.0},
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_times_add_up_to_the_whole(ending: str) -> None:
    line = facts(**ENDINGS[ending])
    assert sum(line.get(name, 0.0) for name in TIMES) == pytest.approx(line["seconds"], abs=0.0005)
    assert all(line.get(name, 0.0) >= 0 for name in TIMES)


def test_a_retry_is_told_with_its_replica_and_reason() -> None:
    line = facts(**ENDINGS["retried"])
    assert (line["attempts"], line["retried"]) == (2, "b:connect_failed")
    assert (line["queue"], line["retry"], line["connect"]) == (0.1, 0.15, 0.25)


def test_a_failure_that_nothing_followed_is_no_retry() -> None:
    line = facts(**ENDINGS["gave-up"])
    assert "retried" not in line
    assert "connect" not in line
    assert line["retry"] == pytest.approx(9.5235, abs=0.0001)


def test_names_that_others_write_are_cut() -> None:
    line = facts(client_id="x" * 60_000, upstream_id="y", model="z" * 60_000)
    assert (len(line["request_id"]), len(line["model"])) == (200, 200)


def test_what_was_asked_for_is_told_where_the_labels_say_something_else() -> None:
    line = facts(endpoint="other", path="/v1/chat/complete", model="other", asked_model="m-" + "7" * 60_000)
    assert (line["endpoint"], line["path"]) == ("other", "/v1/chat/complete")
    assert (line["model"], line["asked_model"]) == ("other", "m-" + "7" * 98)
    assert len(facts(path="/" + "x" * 60_000)["path"]) == 100
    assert facts(asked_model="alias")["asked_model"] == "alias"
    assert not {"path", "asked_model"} & facts(asked_model="m1").keys()
    # Of a head that could not be read.
    assert "path" not in facts(endpoint="other", path="")


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
@pytest.mark.parametrize(
    "evil", ["a\nlevel=error b", "a\x1b[2J", "a\x9bb", "a\u202eb", "a\u2028b", "\udcff\n"]
)
def test_no_name_can_forge_a_line(
    form: logging.Formatter, evil: str, caplog: pytest.LogCaptureFixture
) -> None:
    (record,) = lines(AccessLog(), caplog, client_id=evil, model=evil, asked_model=f"{evil}!", path=evil)
    line = form.format(record)
    assert line.isprintable()
    if isinstance(form, JsonFormatter):
        assert json.loads(line)["request_id"] == evil


def test_both_forms_hold_every_fact(caplog: pytest.LogCaptureFixture) -> None:
    (record,) = lines(AccessLog(), caplog)
    told = json.loads(JsonFormatter().format(record))
    assert (told["event"], told["logger"], told["level"]) == ("request", "replicarouter.access", "info")
    assert facts().items() <= told.items()
    text = TextFormatter().format(record)
    assert " info    request request_id=c1 " in text
    assert text.endswith(f" trace_id={TRACE}")
    assert [part.partition("=")[0] for part in text.split(" request ")[1].split(" ")] == list(facts())


def test_a_success_may_be_lost_before_others(caplog: pytest.LogCaptureFixture) -> None:
    def spared(outcome: str) -> bool:
        (record,) = lines(AccessLog(), caplog, outcome=outcome)
        assert isinstance(record, FactsRecord)
        return record.spare

    assert spared("ok")
    assert not any(spared(outcome) for outcome in ("client_gone", "upstream_error", "no_replica"))


def test_a_quiet_log_has_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        AccessLog().observe(an_exchange())
    assert caplog.records == []


def written(log: AccessLog, caplog: pytest.LogCaptureFixture, outcome: str = "ok") -> list[str]:
    """Of a thousand requests those that have a line."""
    names = [f"request-{number}" for number in range(1000)]
    return [name for name in names if lines(log, caplog, client_id=name, outcome=outcome)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_of_successes_a_share_is_written_and_every_router_draws_the_same(
    share: float, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = AccessLog(share), AccessLog(1.0)
    other.sample = share
    kept = written(log, caplog)
    assert abs(len(kept) / 1000 - share) < 0.05
    assert written(other, caplog) == kept
    assert log.sample == share


def test_a_larger_share_keeps_what_a_smaller_one_keeps(caplog: pytest.LogCaptureFixture) -> None:
    assert set(written(AccessLog(0.1), caplog)) < set(written(AccessLog(0.5), caplog))


@pytest.mark.parametrize("outcome", ["client_gone", "upstream_error", "replica_disconnected"])
def test_of_all_else_every_line_is_written(outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    assert len(written(AccessLog(0.0), caplog, outcome)) == 1000


def test_any_id_can_be_drawn(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(AccessLog(0.999999), caplog, client_id="\udcff\udc80")
