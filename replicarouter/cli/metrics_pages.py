"""Pages of a router's metrics: asked of it, or read from files, and put into the order of time."""

import http.client
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.cli import CommandFailed
from replicarouter.diagnosis.snapshot import PREFIX, Snapshot, without_buckets

ANSWER_TIMEOUT = 10.0
"""Seconds for the router to answer; a router out of processor time takes seconds."""

TOO_CLOSE = 0.5
"""Seconds within which nobody saves two pages for a comparison: files written so were copied."""

SAME_PROCESS = 1.0
"""Seconds within which two start times are those of one process."""


@dataclass(frozen=True, slots=True)
class Source:
    """A router's port at `url`, main or admin. The `keys` are tried in turn when it asks for one."""

    url: str
    keys: Sequence[str] = ()

    def read(self) -> "Page":
        """Its page now; raises `CommandFailed` when no router answers, or it lets nobody in."""
        answer = self._ask(None)
        for key in self.keys:
            if answer[0] not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                break
            answer = self._ask(key)
        status, content, at = answer
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            wrong = "none of those that were given is right" if self.keys else "give it with --key"
            raise CommandFailed(f"the router at {self.url} wants a key for its metrics: {wrong}")
        if status != HTTPStatus.OK:
            raise CommandFailed(f"{self.url} is no router: it answers {status} for /metrics")
        return Page.of(content, at, self.url)

    def _ask(self, key: str | None) -> tuple[int, bytes, float]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_TIMEOUT)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        path = parts.path.rstrip("/").removesuffix("/metrics")
        try:
            connection.request("GET", f"{path}/metrics", headers=headers)
            answer = connection.getresponse()
            at = time.monotonic()
            return answer.status, answer.read(), at
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(f"no router answers at {self.url}: {error or type(error).__name__}") from None
        except ValueError:
            raise CommandFailed("the key holds characters that no key can have") from None
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Page:
    """A snapshot, and what was odd about its page."""

    snapshot: Snapshot
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, content: bytes, at: float, origin: str) -> "Page":
        """Read a page leniently; raises `CommandFailed` when no router wrote it."""
        text = content.decode("utf-8", "replace")
        notices = []
        if text and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            notices.append(f"the page of {origin} ends within a line, which is left out")
        families, broken = _families(without_buckets(text))
        if broken:
            notices.append(f"{broken} lines of the page of {origin} cannot be read and are left out")
        snapshot = Snapshot.of(families, at)
        if not snapshot.of_router:
            raise CommandFailed(
                f"{origin} is no page of a router's metrics: it lacks {PREFIX}requests_receiving"
            )
        if not snapshot.whole:
            notices.append(f"the page of {origin} is not whole: what it lacks cannot be judged")
        return cls(snapshot, tuple(notices))


def saved(files: Sequence[str], seconds: float | None) -> tuple[list[Snapshot], list[str]]:
    """Saved pages in the order of time, `seconds` from the first to the last: if that is not given, as the
    pages say or, where one does not, as the files were written.

    Raises `CommandFailed` for a file that cannot be read or is no such page.
    """
    pages = []
    for name in files:
        try:
            file = Path(name)
            content, written = file.read_bytes(), file.stat().st_mtime
        except OSError as error:
            raise CommandFailed(f"{name} cannot be read: {error.strerror or error}") from None
        pages.append(Page.of(content, written, name))
    notices = [notice for page in pages for notice in page.notices]
    snapshots = [page.snapshot for page in pages]
    if _dated(snapshots):
        snapshots = [snapshot.moved(snapshot.written or 0.0) for snapshot in snapshots]
    ordered = _ordered(snapshots)
    if ordered != snapshots:
        notices.append("the pages were given in the wrong order; the oldest is taken first")
    return _spread(ordered, seconds), notices


def _ordered(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """By the start of their process and the processor time it has used, where all of them tell, or else by
    their own times: a clock may be set back."""
    keys: dict[int, tuple[float, float]] = {}
    for snapshot in snapshots:
        start = snapshot.value("process_start_time_seconds")
        used = snapshot.value("process_cpu_seconds_total")
        if start is None or used is None:
            return sorted(snapshots, key=lambda one: one.at) if _dated(snapshots) else list(snapshots)
        keys[id(snapshot)] = (round(start / SAME_PROCESS), used)
    return sorted(snapshots, key=lambda snapshot: keys[id(snapshot)])


def _dated(snapshots: Sequence[Snapshot]) -> bool:
    """Whether all pages tell when they were written."""
    return all(snapshot.written is not None for snapshot in snapshots)


def _spread(snapshots: Sequence[Snapshot], seconds: float | None) -> list[Snapshot]:
    """Give them their times: evenly over `seconds`, or their own, or all the same if those are of files that
    were copied, or contradict the order."""
    times = [snapshot.at for snapshot in snapshots]
    if seconds is not None:
        times = [place * seconds / max(1, len(times) - 1) for place in range(len(times))]
    elif times != sorted(times) or (times[-1] - times[0] < TOO_CLOSE and not _dated(snapshots)):
        times = [0.0] * len(times)
    return [snapshot.moved(at) for snapshot, at in zip(snapshots, times, strict=True)]


def _families(text: str) -> tuple[list[Metric], int]:
    """The families of a page, and how many of its lines cannot be read."""
    try:
        return list(text_string_to_metric_families(text)), 0
    except (ValueError, IndexError, KeyError):
        pass
    families: list[Metric] = []
    broken = 0
    for line in text.splitlines():
        found = _family(line)
        families += found
        broken += not found and bool(line.strip()) and not line.startswith("#")
    return families, broken


def _family(line: str) -> Iterable[Metric]:
    try:
        return list(text_string_to_metric_families(f"{line}\n"))
    except (ValueError, IndexError, KeyError):
        return ()
