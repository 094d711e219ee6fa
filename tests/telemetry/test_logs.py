"""Log lines: a fixed event and its facts, as text or JSON, whatever the facts hold."""

import io
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from replicarouter.telemetry.line_writer import LineWriter
from replicarouter.telemetry.logs import (
    FactsRecord,
    JsonFormatter,
    LineHandler,
    TextFormatter,
    dropped_lines,
    set_up,
)


def record(
    message: str = "replica ejected", *, level: int = logging.INFO, **facts: object
) -> logging.LogRecord:
    values = {"msg": message, "name": "replicarouter.fleet", "levelno": level}
    values |= {"levelname": logging.getLevelName(level), "created": 1_700_000_000.25, "msecs": 250.0}
    return logging.makeLogRecord({**values, **facts})


def failed_record() -> logging.LogRecord:
    error = ValueError("broken")
    return record("turn failed", level=logging.ERROR, exc_info=(ValueError, error, None))


def test_text_is_one_line_with_time_level_event_and_facts() -> None:
    line = TextFormatter().format(record(replica="a", failures=5))
    assert line == "2023-11-14T22:13:20.250Z info    replica ejected replica=a failures=5"


def test_an_event_without_facts_ends_behind_its_name() -> None:
    assert TextFormatter().format(record()).endswith(" replica ejected")


QUOTED = {
    "": '""',
    "two words": '"two words"',
    "line\nbreak": '"line\\nbreak"',
    "\x1b[31mred": '"\\u001b[31mred"',
    "\udcff": '"\\udcff"',
    'say "a"': '"say \\"a\\""',
    '"a"': '"\\"a\\""',
    "\x9b2J": '"\\u009b2J"',
    "\u202e": '"\\u202e"',
    "\u2028": '"\\u2028"',
}


@pytest.mark.parametrize("value", QUOTED)
def test_a_value_that_could_mislead_is_quoted(value: str) -> None:
    assert TextFormatter().format(record(model=value)).endswith(f" model={QUOTED[value]}")


@pytest.mark.parametrize("value", ["plain", "ü", "/v1/chat/completions", 5, 1.5, None])
def test_a_plain_value_stays_plain(value: object) -> None:
    assert TextFormatter().format(record(model=value)).endswith(f" model={value}")


def test_text_has_a_traceback_below_it() -> None:
    first, *rest = TextFormatter().format(failed_record()).splitlines()
    assert first.endswith("error   turn failed")
    assert rest == ["  ValueError: broken"]


FORGED = "2023-11-14T22:13:20.250Z error   replica ejected replica=a"


@pytest.mark.parametrize("between", ["\n", "\r\n", "\r", "\x1b[2K", "\u2028", "\x85", "\x0b", "\udcff"])
def test_what_others_say_forges_no_line(between: str) -> None:
    """Messages of libraries hold what clients and engines have sent."""
    text = f"bad request: {between}{FORGED}"
    named: dict[str, Any] = {f"fact{between}{FORGED}": text}
    for one in (record(text), record("%s", args=(text,)), record(**named)):
        line = TextFormatter().format(one)
        assert line.isprintable()
        assert FORGED in line
    error = ValueError(text)
    lines = TextFormatter().format(record("failed", exc_info=(ValueError, error, None))).split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_traceback_stays_in_lines() -> None:
    def fail() -> None:
        raise ValueError("first\nsecond")

    try:
        fail()
    except ValueError as error:
        failed = record("failed", exc_info=(ValueError, error, error.__traceback__))
    first, *below = TextFormatter().format(failed).split("\n")
    assert first.endswith(" failed")
    assert below[0] == "  Traceback (most recent call last):"
    assert below[-2:] == ["  ValueError: first", "  second"]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_message_that_does_not_fit_its_values_is_told_all_the_same(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%d of %d", args=("one",)))
    assert "%d of %d" in line
    assert "one" in line


def test_json_is_one_object() -> None:
    line = JsonFormatter().format(record(replica="a", failures=5))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "event": "replica ejected",
        "logger": "replicarouter.fleet",
        "replica": "a",
        "failures": 5,
    }


@pytest.mark.parametrize("value", ["line\nbreak", "\udcff", "ü", {"a": object()}, b"bytes", 2**70, {1: 2}])
def test_json_holds_anything_in_one_line_of_ascii(value: object) -> None:
    line = JsonFormatter().format(record(model=value))
    assert line.isascii()
    assert "\n" not in line
    assert "model" in json.loads(line)


def test_json_has_the_traceback_inside() -> None:
    assert json.loads(JsonFormatter().format(failed_record()))["traceback"] == "ValueError: broken"


def test_a_record_of_facts_is_like_any_other() -> None:
    facts = {"replica": "a", "n": 5}
    cheap = FactsRecord("replicarouter.fleet", "replica ejected", facts, at=1_700_000_000.25, spare=True)
    usual = record(replica="a", n=5)
    for formatter in (
        TextFormatter(),
        JsonFormatter(),
        logging.Formatter("%(name)s %(levelname)s %(message)s"),
    ):
        assert formatter.format(cheap) == formatter.format(usual)


def test_times_go_on_through_the_seconds() -> None:
    formatter = TextFormatter()
    shown = []
    for created in (1_700_000_000.25, 1_700_000_000.999, 1_700_000_001.0, 1_700_000_000.5):
        one = record()
        one.created, one.msecs = created, created % 1 * 1000
        shown.append(formatter.format(one).split(" ")[0])
    assert shown == [
        "2023-11-14T22:13:20.250Z",
        "2023-11-14T22:13:20.999Z",
        "2023-11-14T22:13:21.000Z",
        "2023-11-14T22:13:20.500Z",
    ]


def test_lines_that_were_dropped_are_told_before_the_next_one() -> None:
    reader, descriptor = os.pipe()
    handler = LineHandler(LineWriter(descriptor, room=20_000))
    handler.setFormatter(JsonFormatter())
    facts = {"fact": "x" * 1000}
    for number in range(200):
        handler.handle(FactsRecord("a", f"request {number}", facts, at=0.0, spare=True))
    dropped = handler.writer.dropped
    assert dropped > 50
    with os.fdopen(reader, "rb") as stream:
        for number in range(200 - dropped):
            assert json.loads(stream.readline())["event"] == f"request {number}"
        handler.flush()
        handler.handle(record("replica ejected"))
        told, last = (json.loads(stream.readline()) for _ in range(2))
    assert (told["event"], told["level"], told["count"]) == ("log lines dropped", "warning", dropped)
    assert last["event"] == "replica ejected"


def test_lines_that_a_full_disk_took_are_told_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor, room_again = os.open("/dev/full", os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
    handler = LineHandler(LineWriter(descriptor))
    handler.setFormatter(JsonFormatter())
    for number in range(5):
        handler.handle(record(f"lost {number}"))
        handler.flush()
    os.dup2(room_again, descriptor)
    for event in ("works again", "goes on"):
        handler.handle(record(event))
        handler.flush()
    told, *others = (json.loads(line) for line in path.read_text().splitlines())
    assert (told["event"], told["count"]) == ("log lines dropped", 5)
    assert [line["event"] for line in others] == ["works again", "goes on"]
    assert handler.writer.dropped == 5


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        ("text", io.StringIO, False),
        ("json", Terminal, True),
        ("auto", Terminal, False),
        ("auto", io.StringIO, True),
    ],
)
def test_the_form_is_as_set_or_as_the_stream_suggests(
    form: str, stream: type[io.StringIO], is_json: bool
) -> None:
    target = stream()
    set_up("info", form, target)
    logging.getLogger("replicarouter.test").info("event", extra={"fact": 1})

    assert target.getvalue().startswith("{") == is_json
    assert target.getvalue().count("\n") == 1


@pytest.mark.usefixtures("restored")
def test_the_level_holds_for_all_loggers() -> None:
    target = io.StringIO()
    set_up("warning", "text", target)
    logging.getLogger("replicarouter.test").info("quiet")
    logging.getLogger("elsewhere").warning("loud")

    assert target.getvalue().count("\n") == 1
    assert "loud" in target.getvalue()


@pytest.mark.usefixtures("restored")
def test_lines_to_a_file_are_there_after_a_flush_and_in_utf_8(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="latin-1") as target:
        set_up("info", "text", target)
        for number in range(100):
            logging.getLogger("replicarouter.test").info("event", extra={"number": number, "model": "ü"})
        logging.getLogger().handlers[0].flush()
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" number=")[1] for line in lines] == [f"{number} model=ü" for number in range(100)]
    assert dropped_lines() == 0
