"""Log lines: a fixed event and its facts, as text or JSON, whatever the facts hold."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from replicarouter.telemetry.logs import JsonFormatter, TextFormatter, set_up


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
    assert rest == ["ValueError: broken"]


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


@pytest.mark.parametrize("value", ["line\nbreak", "\udcff", "ü", {"a": object()}, b"bytes"])
def test_json_holds_anything_in_one_line_of_ascii(value: object) -> None:
    line = JsonFormatter().format(record(model=value))
    assert line.isascii()
    assert "\n" not in line
    assert "model" in json.loads(line)


def test_json_has_the_traceback_inside() -> None:
    assert json.loads(JsonFormatter().format(failed_record()))["traceback"] == "ValueError: broken"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def restored() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


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
