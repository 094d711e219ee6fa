"""Logging set-up: a fixed event and its facts, as text for a terminal or JSON for a collector."""

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import orjson

from replicarouter.telemetry.line_writer import LineWriter
from replicarouter.words import printable

FLUSH = 2.0
"""Seconds that a stuck reader may hold up the end of the process."""

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class FactsRecord(logging.LogRecord):
    """A record that is cheap to make: an event with all its `facts` in one mapping, and nothing of where in
    the code it comes from. `at` is when it happened, seconds since 1970. `spare`: where lines must be lost,
    this is one of the first."""

    def __init__(self, logger: str, event: str, facts: Mapping[str, Any], *, at: float, spare: bool) -> None:
        # Not that of the base class, which costs as much as all the rest of a line.
        fields = self.__dict__
        fields.update(_BLANK)
        # Where `extra` puts them, for handlers that are not ours.
        fields.update(facts)
        fields["name"] = logger
        fields["msg"] = event
        fields["created"] = at
        fields["msecs"] = at % 1 * 1000
        self.facts = facts
        self.spare = spare


_BLANK = logging.LogRecord("", logging.INFO, "", 0, "", (), None).__dict__


def _facts(record: logging.LogRecord) -> Mapping[str, Any]:
    if isinstance(record, FactsRecord):
        return record.facts
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _message(record: logging.LogRecord) -> str:
    """What a record says; one whose message and values do not fit says both."""
    try:
        return record.getMessage()
    except (LookupError, TypeError, ValueError):
        return f"{record.msg} {record.args!r}"


class LineFormatter(logging.Formatter):
    """What both forms of a line have in common: the time, in which a second is written once, and the parts of
    which a line without a traceback consists: an opening, facts with a joint between them, a closing."""

    joint = " "
    closing = ""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._shown = ""

    def when(self, record: logging.LogRecord) -> str:
        """The time of a record, in UTC."""
        return self.moment(record.created)

    def moment(self, at: float) -> str:
        """A time, given in seconds since 1970, in UTC."""
        second = int(at)
        if second != self._second:
            self._second = second
            self._shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._shown}.{int(at % 1 * 1000):03d}Z"

    def opening(self, level: str, event: str, logger: str) -> str:
        """A template of what stands before the first fact: `%s` for the time."""
        raise NotImplementedError

    def fact(self, name: str, value: object) -> str:
        """How a fact is written; empty when that depends on the rest of the line."""
        raise NotImplementedError

    def blank(self, name: str, value: object) -> str:
        """A template of a fact: `%s` for a plain text or a number, whichever `value` is."""
        raise NotImplementedError


class TextFormatter(LineFormatter):
    """`time level event key=value …`; a value that holds a space is quoted, control characters are escaped:
    nothing but a traceback has more than one line, and its lines begin with a space."""

    def __init__(self) -> None:
        super().__init__()
        self._templates: dict[tuple[str, ...], str] = {}

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it when there is one."""
        facts = self._shown_facts(_facts(record))
        event = printable(_message(record))
        line = f"{self.when(record)} {record.levelname.lower():7} {event} {facts}".rstrip()
        if not record.exc_info:
            return line
        below = self.formatException(record.exc_info).split("\n")
        return "\n".join((line, *(f"  {printable(one)}" for one in below)))

    def opening(self, level: str, event: str, logger: str) -> str:  # noqa: ARG002 - other forms name it
        """The time, the level and the event."""
        return f"%s {level:7} {printable(event)} "

    def fact(self, name: str, value: object) -> str:
        """`name=value`, quoted where it must be."""
        return f"{printable(name)}={_shown(value)}"

    def blank(self, name: str, value: object) -> str:  # noqa: ARG002 - it has no quotes here
        """`name=%s`."""
        return f"{printable(name)}=%s"

    def _shown_facts(self, facts: Mapping[str, Any]) -> str:
        """All of them as `key=value`: by one template, unless some value has to be quoted."""
        names = tuple(facts)
        template = self._templates.get(names)
        if template is None:
            template = self._templates[names] = " ".join(f"{name.replace('%', '%%')}=%s" for name in names)
        text = template % tuple(facts.values())
        ambiguous = text.count(" ") >= len(names) or '"' in text or "= " in text or text.endswith("=")
        if text.isprintable() and not ambiguous:
            return text
        return " ".join([self.fact(name, value) for name, value in facts.items()])


class JsonFormatter(LineFormatter):
    """One JSON object a line, of ASCII alone: no character of a value can mean anything to a terminal."""

    joint = ","
    closing = "}"

    def format(self, record: logging.LogRecord) -> str:
        """The event, its facts and a traceback if there is one."""
        document = {
            "time": self.when(record),
            "level": record.levelname.lower(),
            "event": _message(record),
            "logger": record.name,
            **_facts(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        try:
            line = orjson.dumps(document, default=str).decode()
            if line.isascii():
                return line
        except TypeError:
            pass  # It holds a number or a character that this writer does not know.
        return json.dumps(document, default=str, separators=(",", ":"))

    def opening(self, level: str, event: str, logger: str) -> str:
        """The time, the level, the event and the logger."""
        fields = {"level": level, "event": event, "logger": logger}
        return f'{{"time":"%s",{orjson.dumps(fields).decode()[1:-1]},'

    def fact(self, name: str, value: object) -> str:
        """`"name":value`; a character beyond ASCII has the whole line written in another way."""
        try:
            text = orjson.dumps({name: value}).decode()[1:-1]
        except TypeError:
            return ""
        return text if text.isascii() and text.isprintable() else ""

    def blank(self, name: str, value: object) -> str:
        """`"name":%s`, or `"name":"%s"` for a text."""
        return f'"{name}":"%s"' if isinstance(value, str) else f'"{name}":%s'


class LineHandler(logging.Handler):
    """Hands lines to a writer that holds up nobody. When lines were dropped, that is a line too, once there
    is room for it."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Have the record written."""
        if self.writer.untold:
            self._tell_of_lost()
        self._put(record, spare=isinstance(record, FactsRecord) and record.spare)

    def write(self, lines: Sequence[str], *, spare: bool) -> None:
        """Have lines written that are formatted already, and end."""
        if not lines:
            return
        lock, writer = self.lock, self.writer
        assert lock is not None
        with lock:
            if writer.untold:
                self._tell_of_lost()
            writer.put("".join(lines).encode(), spare=spare, lines=len(lines))

    def flush(self) -> None:
        """Wait for what is not written yet, but not for ever."""
        self.writer.flush(FLUSH)

    def _tell_of_lost(self) -> None:
        if self.writer.relaxed:
            count = self.writer.untold
            lost = logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines dropped", (), None)
            lost.count = count
            self._put(lost, spare=False, tells=count)

    def _put(self, record: logging.LogRecord, *, spare: bool, tells: int = 0) -> None:
        line = f"{self.format(record)}\n"
        self.writer.put(line.encode("utf-8", "backslashreplace"), spare=spare, tells=tells)


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error); `form` is `text`, `json` or `auto` (by terminal)."""
    target = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and target.isatty())
    handler = _handler(target)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def flush() -> None:
    """Wait for lines that are not written yet, but not for ever."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def set_level(level: str) -> None:
    """Log what is of this level or above from now on."""
    logging.getLogger().setLevel(level.upper())


def dropped_lines() -> int:
    """Lines that were not written: nobody read them in time, or there was no room on a disk."""
    handlers = logging.getLogger().handlers
    return sum(handler.writer.dropped for handler in handlers if isinstance(handler, LineHandler))


def _handler(target: TextIO) -> logging.Handler:
    try:
        descriptor = target.fileno()
    except (OSError, ValueError):
        return logging.StreamHandler(target)  # It leads nowhere that could hold us up.
    target.flush()
    return LineHandler(LineWriter(descriptor))


def _shown(value: object) -> str:
    text = str(value)
    odd = not text or not text.isprintable() or " " in text or '"' in text
    return json.dumps(text) if odd else text
