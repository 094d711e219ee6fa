"""Logging set-up: a fixed event and its facts, as text for a terminal or JSON for a collector."""

import json
import logging
import sys
import time
from typing import Any, TextIO

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _when(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{moment}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`time level event key=value …`; a value that holds a space is quoted, control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it when there is one."""
        facts = " ".join(f"{key}={_shown(value)}" for key, value in _facts(record).items())
        line = f"{_when(record)} {record.levelname.lower():7} {record.getMessage()} {facts}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The event, its facts and a traceback if there is one."""
        document = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_facts(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error); `form` is `text`, `json` or `auto` (by terminal)."""
    target = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Log what is of this level or above from now on."""
    logging.getLogger().setLevel(level.upper())


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or not text.isprintable() or not text else text
