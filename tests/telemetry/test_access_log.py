"""One line for each exchange."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from replicarouter.exchange import PastAttempt, Stage
from replicarouter.protocol.traceparent import Trace
from replicarouter.telemetry.access_log import (
    MOST_KEPT,
    MOST_TEMPLATES,
    WRITE_AFTER,
    AccessLines,
    AccessLog,
    facts_of,
)
from replicarouter.telemetry.logs import (
    FactsRecord,
    JsonFormatter,
    LineFormatter,
    TextFormatter,
    dropped_lines,
    set_up,
)
from tests.scene import CHAT, HandClock, HandTimer, an_exchange

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


def a_log(sample: float = 1.0) -> AccessLog:
    return AccessLog(sample, time.time)


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
    (record,) = lines(a_log(), caplog, client_id=evil, model=evil, asked_model=f"{evil}!", path=evil)
    line = form.format(record)
    assert line.isprintable()
    if isinstance(form, JsonFormatter):
        assert json.loads(line)["request_id"] == evil


def test_both_forms_hold_every_fact(caplog: pytest.LogCaptureFixture) -> None:
    (record,) = lines(a_log(), caplog)
    told = json.loads(JsonFormatter().format(record))
    assert (told["event"], told["logger"], told["level"]) == ("request", "replicarouter.access", "info")
    assert facts().items() <= told.items()
    text = TextFormatter().format(record)
    assert " info    request request_id=c1 " in text
    assert text.endswith(f" trace_id={TRACE}")
    assert [part.partition("=")[0] for part in text.split(" request ")[1].split(" ")] == list(facts())


def test_a_success_may_be_lost_before_others(caplog: pytest.LogCaptureFixture) -> None:
    def spared(outcome: str) -> bool:
        (record,) = lines(a_log(), caplog, outcome=outcome)
        assert isinstance(record, FactsRecord)
        return record.spare

    assert spared("ok")
    assert not any(spared(outcome) for outcome in ("client_gone", "upstream_error", "no_replica"))


def test_a_quiet_log_has_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        a_log().observe(an_exchange())
    assert caplog.records == []


def written(log: AccessLog, caplog: pytest.LogCaptureFixture, outcome: str = "ok") -> list[str]:
    """Of a thousand requests those that have a line."""
    names = [f"request-{number}" for number in range(1000)]
    return [name for name in names if lines(log, caplog, client_id=name, outcome=outcome)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_of_successes_a_share_is_written_and_every_router_draws_the_same(
    share: float, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = a_log(share), a_log(1.0)
    other.sample = share
    kept = written(log, caplog)
    assert abs(len(kept) / 1000 - share) < 0.05
    assert written(other, caplog) == kept
    assert log.sample == share


def test_a_larger_share_keeps_what_a_smaller_one_keeps(caplog: pytest.LogCaptureFixture) -> None:
    assert set(written(a_log(0.1), caplog)) < set(written(a_log(0.5), caplog))


@pytest.mark.parametrize("outcome", ["client_gone", "upstream_error", "replica_disconnected"])
def test_of_all_else_every_line_is_written(outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    assert len(written(a_log(0.0), caplog, outcome)) == 1000


def test_any_id_can_be_drawn(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(a_log(0.999999), caplog, client_id="\udcff\udc80")


COMMON: list[dict[str, Any]] = [
    {},
    {"outcome": "upstream_error", "status": 503},
    {"outcome": "client_gone"},
    {"peer": "team-a"},
    {"caller": "", "peer": ""},
    {"caller": "team b", "peer": "::1"},
    {"asked_model": "an alias"},
    {"model": "100%"},
    {"model": "50%s"},
    {"model": 'a "b" \\ c'},
    {"model": "a="},
    {"model": "a\nb"},
    {"model": "x" * 300},
    {"first_content_at": 0.0},
    {"cached_tokens": None},
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": 0, "cached_tokens": 0},
    {"trace": Trace("")},
    {"policy": "", "affinity": "none"},
    {"ended_at": 1003.0},
    {"ended_at": 987_654_321.12344},
    {"received_at": 1000.00004, "leased_at": 1000.00016, "sent_at": 1000.00999},
    {"sent_at": 1004.5},
]
"""Differences from `ANSWERED` with which a line is written in the common way."""

RARE: list[dict[str, Any]] = [
    {"client_id": "not plain", "upstream_id": "not plain"},
    {"client_id": 'say "a"', "upstream_id": 'say "a"'},
    {"client_id": "\udcff", "upstream_id": "\udcff"},
    {"client_id": "x" * 201, "upstream_id": "x" * 201},
    {"client_id": "", "upstream_id": ""},
    {"upstream_id": "another"},
    {"path": "/v1/elsewhere"},
    {"attempts": 2, "past": (PastAttempt("b", "http_503", 1000.6, 1000.65, 1000.7),)},
    {"head_at": 0.0},
    {"leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0},
    {"received_at": 0.0, "leased_at": 0.0, "sent_at": 0.0, "head_at": 0.0},
]
"""And with which it is not."""

ODD: list[dict[str, Any]] = [{"model": name} for name in ("ü", "\udcff", "a\x7fb", "\x9b")]
"""Names of which only text says by themselves how they are written."""


def asked(fields: dict[str, Any]) -> dict[str, Any]:
    named = {"path": CHAT, **ANSWERED, **fields}
    return {"asked_model": named["model"], **named}


def without_time(line: str) -> str:
    return line[:8] + line[33:] if line.startswith("{") else line[24:]


def told_by(form: LineFormatter, fields: dict[str, Any]) -> str:
    """The line of a record, without its time."""
    facts = facts_of(an_exchange(**asked(fields)))
    record = FactsRecord("replicarouter.access", "request", facts, at=0.0, spare=True)
    return without_time(form.format(record))


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_are_the_same_whichever_way_they_are_written(form: str, tmp_path: Path) -> None:
    formatter = TextFormatter() if form == "text" else JsonFormatter()
    log = a_log()
    # Each twice: also from what the first has left behind.
    every = [fields for fields in (*COMMON, *RARE, *ODD) for _ in range(2)]
    with (tmp_path / "log").open("w") as target:
        set_up("info", form, target)
        for fields in every:
            log.observe(an_exchange(**asked(fields)))
        logging.getLogger().handlers[0].flush()
    lines = (tmp_path / "log").read_text(encoding="utf-8").split("\n")
    assert [without_time(line) for line in lines[:-1]] == [told_by(formatter, fields) for fields in every]
    assert (lines[-1], dropped_lines()) == ("", 0)


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_what_is_common_is_written_without_a_record(form: LineFormatter) -> None:
    lines = AccessLines(form)
    assert all(lines.line(an_exchange(**asked(fields)), 0.0) for fields in COMMON)
    assert not any(lines.line(an_exchange(**asked(fields)), 0.0) for fields in RARE)
    assert all(bool(lines.line(an_exchange(**asked(odd)), 0.0)) == (form.joint == " ") for odd in ODD)


def test_templates_do_not_grow_with_what_clients_write() -> None:
    lines = AccessLines(JsonFormatter())
    for number in range(2 * MOST_TEMPLATES + 10):
        one = an_exchange(**asked({"model": f"m{number}", "caller": f"c{number}"}))
        line = json.loads(lines.line(one, 0.0))
        assert (line["model"], line["caller"]) == (f"m{number}", f"c{number}")
    assert len(lines._templates) <= MOST_TEMPLATES
    assert len(lines._senders) <= MOST_TEMPLATES


@pytest.mark.usefixtures("restored")
def test_whoever_else_listens_hears_of_every_line(tmp_path: Path) -> None:
    heard: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    log, access, listener = a_log(), logging.getLogger("replicarouter.access"), Listener()
    with (tmp_path / "log").open("w") as target:
        set_up("info", "json", target)
        root = logging.getLogger()
        for logger in (root, access):
            log.observe(an_exchange(**asked({})))
            logger.addHandler(listener)
            log.observe(an_exchange(**asked({})))
            logger.removeHandler(listener)
        log.observe(an_exchange(**asked({})))
        root.handlers[0].flush()
    assert len(heard) == 2
    assert (tmp_path / "log").read_text().count("\n") == 5


# Written a little later


def ids(target: Path) -> list[str]:
    """The requests of which there are lines."""
    logging.getLogger().handlers[0].flush()
    return [json.loads(line)["request_id"] for line in target.read_text(encoding="utf-8").splitlines()]


def observe(log: AccessLog, *names: str, **fields: Any) -> None:
    for name in names:
        log.observe(an_exchange(**asked({"client_id": name, "upstream_id": name, **fields})))


@contextmanager
def written_to(path: Path) -> Iterator[Path]:
    """As the process does it; within a test, since pytest listens to the root logger as well."""
    with path.open("w") as file:
        set_up("info", "json", file)
        yield path


@pytest.mark.usefixtures("restored")
def test_successes_are_written_together_a_little_later(tmp_path: Path) -> None:
    log, later = a_log(), HandTimer()
    log.later = later
    with written_to(tmp_path / "log") as target:
        observe(log, "a", "b")
        assert ids(target) == []
        assert [seconds for seconds, _ in later.due] == [WRITE_AFTER]
        later.fire()
        assert ids(target) == ["a", "b"]
        observe(log, "c")
        assert len(later.due) == 1
        log.write_out()
        later.fire()
        assert ids(target) == ["a", "b", "c"]


@pytest.mark.usefixtures("restored")
def test_what_is_no_success_is_written_at_once_and_in_order(tmp_path: Path) -> None:
    log = a_log()
    log.later = HandTimer()
    with written_to(tmp_path / "log") as target:
        observe(log, "a")
        observe(log, "b", outcome="upstream_error")
        assert ids(target) == ["a", "b"]


@pytest.mark.usefixtures("restored")
def test_only_so_many_wait(tmp_path: Path) -> None:
    log, later = a_log(), HandTimer()
    log.later = later
    names = [f"r{number}" for number in range(2 * MOST_KEPT + 1)]
    with written_to(tmp_path / "log") as target:
        observe(log, *names)
        assert ids(target) == names[:-1]
        assert len(later.due) == 1
        log.write_out()
        assert ids(target) == names


@pytest.mark.usefixtures("restored")
def test_a_line_has_the_time_of_its_request(tmp_path: Path) -> None:
    """Whether it is a common one or not."""
    wall = HandClock(1_700_000_000.25)
    log = AccessLog(1.0, wall)
    log.later = HandTimer()
    with written_to(tmp_path / "log") as target:
        observe(log, "common")
        observe(log, "rare", path="/v1/odd")
        wall.move(5.0)
        log.write_out()
        logging.getLogger().handlers[0].flush()
        lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [line["time"] for line in lines] == ["2023-11-14T22:13:20.250Z"] * 2


@pytest.mark.usefixtures("restored")
def test_what_waits_is_written_before_another_handler_takes_over(tmp_path: Path) -> None:
    log = a_log()
    log.later = HandTimer()
    with written_to(tmp_path / "first") as first:
        (before,) = logging.getLogger().handlers
        observe(log, "a")
        with written_to(tmp_path / "second") as second:
            observe(log, "b")
            log.write_out()
            assert ids(second) == ["b"]
        before.flush()
    assert json.loads(first.read_text(encoding="utf-8"))["request_id"] == "a"


@pytest.mark.usefixtures("restored")
def test_whoever_listens_hears_at_once_of_what_others_get_later(tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.__dict__["request_id"])

    log, listener = a_log(), Listener()
    log.later = HandTimer()
    with written_to(tmp_path / "log") as target:
        observe(log, "a")
        logging.getLogger("replicarouter.access").addHandler(listener)
        observe(log, "b")
        logging.getLogger("replicarouter.access").removeHandler(listener)
        assert heard == ["b"]
        assert ids(target) == ["a", "b"]
