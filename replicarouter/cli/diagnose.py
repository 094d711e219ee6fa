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
from typing import Any

from replicarouter.cli import CommandFailed
from replicarouter.cli.metrics_pages import ANSWER_TIMEOUT, NoAnswer, Source, saved
from replicarouter.cli.values import ROUTER, count, router_url, seconds
from replicarouter.diagnosis.judge import diagnose, exit_status
from replicarouter.diagnosis.ledger import STAGES, ledger
from replicarouter.diagnosis.silence import Attendance, router_silent
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.text import conclusion, conclusion_lines, ledger_lines, verdict_lines
from replicarouter.diagnosis.verdict import Expectations, Verdict
from replicarouter.diagnosis.window import Window
from replicarouter.diagnosis.words import counted, length

NAME = "diagnose"
HELP = "say where the requests are, and what limits them"

KEY_VARIABLES = ("OPENAI_API_KEY", "REPLICAROUTER_ADMIN__TOKEN")
"""Tried in turn, and only when the router asks for a key. One that is given as a flag is sent at once."""

LOOK_INTERVAL = 0.5
"""Seconds between two looks: twice in the time between two readings of the engines."""

LOOKS_FOR = 5.0
"""Seconds of a window unless it is said: some readings of the engines, and no long wait for an answer."""

LOOK_TIMEOUT = 4 * LOOK_INTERVAL
"""Seconds for the answer to a look after the first: the window ends no later than this after its time."""

SCREEN_INTERVAL = 1.0
"""Seconds between two reports of `--watch`."""

MOST_ROWS = 16
"""Replicas that `--watch` shows: a screen has some 40 lines, and the verdicts belong on it."""

CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = (
        "exit status: 0 nothing limits but the engines' own speed, or no request is in flight (only "
        "--expect-concurrency judges a client that does not come), 3 the router or its settings limit, or it "
        "has stopped answering, 4 something else limits, 1 no router answers"
    )
    flag = parser.add_argument
    help_ = f"the router, by its main or its admin port (default: {ROUTER})"
    flag("url", nargs="?", type=router_url, metavar="URL", help=help_)
    flag("--router", type=router_url, metavar="URL", help="the same")
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
        type=seconds,
        metavar="SECONDS",
        help=f"how long to look (default: {LOOKS_FOR:g}); with --from the time between the pages "
        "(default: what they say themselves, or else as the files were written)",
    )
    flag("--watch", action="store_true", help="go on until Ctrl-C, judging the last seconds each time")
    flag(
        "--expect-concurrency",
        type=count,
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
    if arguments.url and arguments.router:
        arguments.parser.error("URL and --router say the same: leave one out")
    url = arguments.url or arguments.router
    if arguments.files and (url or arguments.watch):
        arguments.parser.error("--from reads files: leave out the router's URL and --watch")
    expected = Expectations(concurrency=arguments.expect_concurrency, cold=arguments.expect_cold)
    if arguments.files:
        snapshots, notices = saved(arguments.files, arguments.seconds)
        report = Report.of(Window(snapshots), expected, notices, ", ".join(arguments.files))
        return _written(report, arguments)
    try:
        return _looked(_Looks(_source(url, arguments), arguments.seconds or LOOKS_FOR), expected, arguments)
    except NoAnswer as error:
        hint = "" if url else "; give its address with --router URL"
        raise CommandFailed(f"{error}{hint}") from None


def _source(url: str | None, arguments: argparse.Namespace) -> Source:
    if arguments.key:
        return Source(url or ROUTER, [arguments.key], wanted=True)
    return Source(url or ROUTER, [key for name in KEY_VARIABLES if (key := os.environ.get(name))])


def _looked(looks: "_Looks", expected: Expectations, arguments: argparse.Namespace) -> int:
    if arguments.watch:
        return _watch(looks, expected, _writer(arguments))
    looks.until_full()
    return _written(looks.report(expected), arguments)


def _written(report: "Report", arguments: argparse.Namespace) -> int:
    sys.stdout.write(report.json() if arguments.json else report.text())
    return report.status


@dataclass(frozen=True, slots=True)
class Report:
    """A diagnosis and all that is said with it.

    `ago`: seconds since the router told it, if it has not answered since; `told`: whether what it told then
    is worth telling.
    """

    window: Window
    verdicts: Sequence[Verdict]
    notices: Sequence[str]
    origin: str
    ago: float = 0.0
    told: bool = True

    @classmethod
    def of(
        cls,
        window: Window,
        expected: Expectations,
        notices: Sequence[str],
        origin: str,
        seen: Attendance | None = None,
    ) -> "Report":
        """Judge a window, and whether there was an answer to all looks."""
        notices = list(notices)
        verdicts = diagnose(window, expected)
        if not window.rates:
            notices.append("one page tells no rates: this goes by gauges alone")
        elif not window.seconds:
            notices.append(
                "the time between the pages is not known, so rates are not judged (--for SECONDS says it)"
            )
        if seen is None or not seen.missed:
            return cls(window, verdicts, notices, origin)
        if (silent := router_silent(seen)) is not None:
            return cls(window, [silent, *verdicts], notices, origin, seen.ago)
        notices.append(f"the router did not answer at {seen.missed} of {counted(seen.looks, 'look')}")
        return cls(window, verdicts, notices, origin)

    @classmethod
    def without(cls, window: Window, origin: str, seen: Attendance) -> "Report":
        """That there is no answer, and nothing of what the router told before."""
        silent = router_silent(seen)
        notices = [f"no answer for {length(seen.ago)}"]
        return cls(window, [silent] if silent else [], notices, origin, seen.ago, told=False)

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
        router = f"router {self.version or 'of unknown version'} at {self.origin}"
        looks = counted(len(self.window.snapshots), "look")
        if self.window.seconds:
            looks = f"{looks} over {length(self.window.seconds)}"
        notes = [f"note: {notice}" for notice in self.notices]
        if not self.told:
            return (
                "\n".join([router, *notes, *verdict_lines(Window([self.window.last]), self.verdicts)]) + "\n"
            )
        lines = [
            f"{router}, {looks}",
            *notes,
            "",
            *ledger_lines(ledger(self.window.last), most_rows, ago=self.ago),
            *verdict_lines(self.window, self.verdicts),
            *([] if self.status else ["", *conclusion_lines(self.window, self.verdicts)]),
        ]
        return "\n".join(lines) + "\n"

    def line(self) -> str:
        """All in one line, for a log."""
        now = time.strftime("%H:%M:%S")
        codes = [verdict.code for verdict in self.verdicts]
        if not self.told:
            return f"{now} {', '.join(self.notices)} | {', '.join(codes)}\n"
        counts = ledger(self.window.last)
        stages = " ".join(f"{stage} {counts[stage]}" for stage in STAGES)
        engines = f"running {counts['running']} waiting {counts['waiting']}"
        calm = "nothing limits" if counts["accepted"] else "no request in flight"
        found = codes if self.status else [calm, *codes]
        return f"{now} {stages} | {engines} | {', '.join(found)}\n"

    def json(self, indent: int | None = 2) -> str:
        """For programs."""
        document: dict[str, Any] = {
            "router": self.origin,
            "version": self.version,
            "seconds": self.window.seconds,
            "looks": len(self.window.snapshots),
            "notices": list(self.notices),
            "exit_status": self.status,
            "ledger": ledger(self.window.last) if self.told else None,
            "verdicts": [verdict.document() for verdict in self.verdicts],
            "summary": conclusion(self.window, self.verdicts),
        }
        return json.dumps(document, indent=indent) + "\n"


@dataclass(slots=True)
class _Looks:
    """Looks at a router at regular times, those of the last `length` seconds; of the ones without an answer
    the times are kept, and why the last had none."""

    source: Source
    length: float
    kept: deque[Snapshot] = field(default_factory=deque)
    missed: deque[float] = field(default_factory=deque)
    why: str = ""
    notices: dict[str, None] = field(default_factory=dict)

    def until_full(self) -> None:
        """Look until the window is as long as it should be. Turns that pass while a look waits for its answer
        are left out."""
        self.look()
        begin = self.kept[0].at
        past = time.monotonic() - begin
        while past < self.length:
            due = min((past // LOOK_INTERVAL + 1) * LOOK_INTERVAL, self.length)
            time.sleep(max(0.0, begin + due - time.monotonic()))
            self.look()
            past = max(due, time.monotonic() - begin)

    def look(self) -> None:
        """Look once; raises `CommandFailed` if there was never an answer."""
        try:
            page = self.source.read(LOOK_TIMEOUT if self.kept else ANSWER_TIMEOUT)
        except CommandFailed as error:
            if not self.kept:
                raise
            self.why = error.reason if isinstance(error, NoAnswer) else str(error)
            self.missed.append(time.monotonic())
            return
        self.notices.update(dict.fromkeys(page.notices))
        self.kept.append(page.snapshot)

    def forget(self) -> None:
        """Forget what is older than the window, but not the last answer."""
        oldest = time.monotonic() - self.length - LOOK_INTERVAL / 2
        while len(self.kept) > 1 and self.kept[0].at < oldest:
            self.kept.popleft()
        while self.missed and self.missed[0] < oldest:
            self.missed.popleft()

    @property
    def seen(self) -> Attendance:
        """How many had an answer."""
        last = self.kept[-1].at
        gone = bool(self.missed) and self.missed[-1] > last
        return Attendance(
            looks=len(self.kept) + len(self.missed),
            missed=len(self.missed),
            why=self.why,
            ago=time.monotonic() - last if gone else 0.0,
        )

    def report(self, expected: Expectations) -> Report:
        """Judge what was seen."""
        return Report.of(Window(list(self.kept)), expected, list(self.notices), self.source.url, self.seen)

    def report_now(self, expected: Expectations) -> Report:
        """The same, unless there is no answer now: then nothing that was told before."""
        if self.seen.gone:
            return Report.without(Window(list(self.kept)), self.source.url, self.seen)
        return self.report(expected)


def _watch(looks: _Looks, expected: Expectations, write: Callable[[Report], None]) -> int:
    """Report once a second until Ctrl-C; returns the exit status of the last report."""
    status, due = 0, time.monotonic()
    with suppress(KeyboardInterrupt):
        while True:
            turn = time.monotonic()
            looks.look()
            looks.forget()
            if time.monotonic() > due - LOOK_INTERVAL / 2:
                report = looks.report_now(expected)
                write(report)
                status, due = report.status, turn + SCREEN_INTERVAL
            time.sleep(max(0.0, turn + LOOK_INTERVAL - time.monotonic()))
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
