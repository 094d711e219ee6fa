"""`replicarouter diagnose`: where the requests are and what limits them, from a router's metrics."""

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NoReturn
from urllib.parse import urlsplit

from replicarouter.cli import CommandFailed
from replicarouter.cli.metrics_pages import Source, saved
from replicarouter.diagnosis.judge import diagnose, exit_status
from replicarouter.diagnosis.ledger import STAGES, ledger
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.text import conclusion, conclusion_lines, ledger_lines, verdict_lines
from replicarouter.diagnosis.verdict import Expectations, Verdict
from replicarouter.diagnosis.window import Window
from replicarouter.diagnosis.words import counted, length

NAME = "diagnose"
HELP = "say where the requests are, and what limits them"

ROUTER = "http://127.0.0.1:8080"
KEY_VARIABLES = ("OPENAI_API_KEY", "REPLICAROUTER_ADMIN__TOKEN")
"""Tried in this order, and only when the router asks for a key."""

LOOK_INTERVAL = 0.5
"""Seconds between two looks: twice in the time between two readings of the engines."""

LOOKS_FOR = 5.0
"""Seconds of a window unless it is said: some readings of the engines, and no long wait for an answer."""

SCREEN_INTERVAL = 1.0
"""Seconds between two reports of `--watch`."""

MOST_ROWS = 16
"""Replicas that `--watch` shows: a screen has some 40 lines, and the verdicts belong on it."""

CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = (
        "exit status: 0 nothing limits but the engines' own speed, 3 the router or its settings limit, "
        "4 something else does, 1 no router answers"
    )
    flag = parser.add_argument
    flag(
        "--router",
        type=_url,
        metavar="URL",
        help=f"the router, by its main or its admin port (default: {ROUTER})",
    )
    flag(
        "--from",
        dest="files",
        nargs="+",
        metavar="FILE",
        help="saved pages of /metrics instead, the older one first; a single one tells no rates",
    )
    flag(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="SECONDS",
        help=f"how long to look (default: {LOOKS_FOR:g}); with --from the time between the pages "
        "(default: what they say themselves, or else as the files were written)",
    )
    flag("--watch", action="store_true", help="go on until Ctrl-C, judging the last seconds each time")
    flag(
        "--expect-concurrency",
        type=_count,
        metavar="N",
        help="requests that the client means to have in flight; fewer are then a finding",
    )
    flag(
        "--expect-cold",
        action="store_true",
        help="no prompt should be found in a prefix cache; if one is, that is a finding",
    )
    flag("--json", action="store_true", help="print one JSON document, with --watch one a line")
    flag(
        "--key",
        metavar="KEY",
        help="API key or admin token, where the router asks for one (or set one of "
        f"{', '.join(KEY_VARIABLES)})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look, print what was found, and return its exit status; `CommandFailed` when no router answers."""
    if arguments.files and (arguments.router or arguments.watch):
        arguments.parser.error("--from reads files: leave out --router and --watch")
    expected = Expectations(concurrency=arguments.expect_concurrency, cold=arguments.expect_cold)
    if arguments.files:
        snapshots, notices = saved(arguments.files, arguments.seconds)
        report = Report.of(Window(snapshots), expected, notices, ", ".join(arguments.files))
        sys.stdout.write(report.json() if arguments.json else report.text())
        return report.status
    given = [arguments.key] if arguments.key else [os.environ.get(name, "") for name in KEY_VARIABLES]
    url = arguments.router or ROUTER
    looks = _Looks(Source(url, [key for key in given if key]), arguments.seconds or LOOKS_FOR)
    if arguments.watch:
        return _watch(looks, expected, _writer(arguments))
    looks.until_full()
    report = looks.report(expected)
    sys.stdout.write(report.json() if arguments.json else report.text())
    return report.status


@dataclass(frozen=True, slots=True)
class Report:
    """A diagnosis and all that is said with it."""

    window: Window
    verdicts: Sequence[Verdict]
    notices: Sequence[str]
    origin: str

    @classmethod
    def of(cls, window: Window, expected: Expectations, notices: Sequence[str], origin: str) -> "Report":
        """Judge a window."""
        notices = list(notices)
        if not window.rates:
            notices.append("one page tells no rates: this goes by gauges alone")
        elif not window.seconds:
            notices.append(
                "the time between the pages is not known, so rates are not judged (--for SECONDS says it)"
            )
        return cls(window, diagnose(window, expected), notices, origin)

    @property
    def status(self) -> int:
        """The exit status."""
        return exit_status(self.verdicts)

    @property
    def version(self) -> str:
        """The router's, as far as it is told."""
        return next((row.get("version", "") for row, _ in self.window.last.rows("build_info")), "")

    def text(self, most_rows: int | None = None) -> str:
        """For people."""
        looks = counted(len(self.window.snapshots), "look")
        if self.window.seconds:
            looks = f"{looks} over {length(self.window.seconds)}"
        lines = [
            f"router {self.version or 'of unknown version'} at {self.origin}, {looks}",
            *(f"note: {notice}" for notice in self.notices),
            "",
            *ledger_lines(ledger(self.window), most_rows),
            *verdict_lines(self.window, self.verdicts),
            *([] if self.status else ["", *conclusion_lines(self.window, self.verdicts)]),
        ]
        return "\n".join(lines) + "\n"

    def line(self) -> str:
        """All in one line, for a log."""
        counts = ledger(self.window)
        stages = " ".join(f"{stage} {counts[stage]}" for stage in STAGES)
        found = ", ".join(verdict.code for verdict in self.verdicts) or "nothing limits"
        engines = f"running {counts['running']} waiting {counts['waiting']}"
        return f"{time.strftime('%H:%M:%S')} {stages} | {engines} | {found}\n"

    def json(self, indent: int | None = 2) -> str:
        """For programs."""
        document: dict[str, Any] = {
            "router": self.origin,
            "version": self.version,
            "seconds": self.window.seconds,
            "looks": len(self.window.snapshots),
            "notices": list(self.notices),
            "exit_status": self.status,
            "ledger": ledger(self.window),
            "verdicts": [verdict.document() for verdict in self.verdicts],
            "summary": conclusion(self.window, self.verdicts),
        }
        return json.dumps(document, indent=indent) + "\n"


@dataclass(slots=True)
class _Looks:
    """Looks at a router at regular times, and keeps those of the last `length` seconds."""

    source: Source
    length: float
    kept: deque[Snapshot] = field(default_factory=deque)
    notices: dict[str, None] = field(default_factory=dict)
    missed: int = 0

    def until_full(self) -> None:
        """Look until the window is as long as it should be."""
        begin = time.monotonic()
        turns = ceil(self.length / LOOK_INTERVAL)
        for due in (*(turn * LOOK_INTERVAL for turn in range(turns)), self.length):
            time.sleep(max(0.0, begin + due - time.monotonic()))
            self.look()

    def look(self) -> None:
        """Look once; raises `CommandFailed` if there was never an answer."""
        try:
            page = self.source.read()
        except CommandFailed:
            if not self.kept:
                raise
            self.missed += 1
            return
        self.notices.update(dict.fromkeys(page.notices))
        self.kept.append(page.snapshot)
        oldest = page.snapshot.at - self.length - LOOK_INTERVAL / 2
        while self.kept[0].at < oldest:
            self.kept.popleft()

    def report(self, expected: Expectations) -> Report:
        """Judge what was seen."""
        notices = list(self.notices)
        if self.missed:
            notices.append(f"the router did not answer at {counted(self.missed, 'look')}")
        return Report.of(Window(list(self.kept)), expected, notices, self.source.url)


def _watch(looks: _Looks, expected: Expectations, write: Callable[[Report], None]) -> int:
    """Report once a second until Ctrl-C; returns the exit status of the last report."""
    status = 0
    with suppress(KeyboardInterrupt):
        while True:
            due = time.monotonic() + SCREEN_INTERVAL
            looks.missed = 0
            looks.look()
            report = looks.report(expected)
            write(report)
            status = report.status
            for _ in range(round(SCREEN_INTERVAL / LOOK_INTERVAL) - 1):
                time.sleep(LOOK_INTERVAL)
                looks.look()
            time.sleep(max(0.0, due - time.monotonic()))
    return status


def _writer(arguments: argparse.Namespace) -> Callable[[Report], None]:
    """A screen on a terminal, else a line, for each report."""

    def write(report: Report) -> None:
        if arguments.json:
            text = report.json(None)
        elif sys.stdout.isatty():
            text = CLEAR + report.text(MOST_ROWS)
        else:
            text = report.line()
        sys.stdout.write(text)
        sys.stdout.flush()

    return write


# Words


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        usable = False
    if not usable:
        _wrong(f"{text!r} is no URL such as {ROUTER}")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        _wrong(f"{text!r} is no number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        _wrong(f"{text!r} is no number of requests, 1 or more")
    return int(text)


def _wrong(message: str) -> NoReturn:
    raise argparse.ArgumentTypeError(message)
