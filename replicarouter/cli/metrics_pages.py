"""Pages of a router's metrics: asked of it, or read from files, and put into the order of time."""

import http.client
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.cli import CommandFailed
from replicarouter.diagnosis.snapshot import FIRST, PREFIX, Snapshot, without_buckets

ANSWER_TIMEOUT = 10.0
"""Seconds for the router to answer; a router out of processor time takes seconds."""

MOST_BYTES = 64 << 20
"""A page of a thousand replicas has some megabytes; what is longer is none."""

REFUSED = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))

TOO_CLOSE = 0.5
"""Seconds within which nobody saves two pages for a comparison: files written so were copied."""

SAME_PROCESS = 1.0
"""Seconds within which two start times are those of one process."""


class NoAnswer(CommandFailed):
    """Nobody answers, for this `reason`."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no router answers at {url}: {reason}")
        self.reason = reason


class Source:
    """A router's port at `url`, main or admin.

    The `keys` are tried in turn when it asks for one, or at once where `wanted` says that it will. The one
    that it takes is tried first from then on.
    """

    def __init__(self, url: str, keys: Sequence[str] = (), *, wanted: bool = False) -> None:
        self.url = url
        self._keys: list[str | None] = [*keys] if wanted and keys else [None, *keys]

    def read(self, timeout: float = ANSWER_TIMEOUT) -> "Page":
        """Its page now; raises `CommandFailed` when no router answers, or it lets nobody in."""
        for key in tuple(self._keys):
            status, content, at = self._ask(key, timeout)
            if status not in REFUSED:
                self._keys.remove(key)
                self._keys.insert(0, key)
                break
        else:
            given = any(key is not None for key in self._keys)
            wrong = "none of those that were given is right" if given else "give it with --key"
            raise CommandFailed(f"the router at {self.url} wants a key for its metrics: {wrong}")
        if status != HTTPStatus.OK:
            raise CommandFailed(f"{self.url} is no router: it answers {status} for /metrics")
        return Page.of(content, at, self.url)

    def _ask(self, key: str | None, timeout: float) -> tuple[int, bytes, float]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        path = parts.path.rstrip("/").removesuffix("/metrics")
        try:
            connection.request("GET", f"{path}/metrics", headers=headers)
            answer = connection.getresponse()
            at = time.monotonic()
            content = _bounded(answer, self.url)
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
            return answer.status, content, at
        except OSError as error:
            raise NoAnswer(self.url, error.strerror or str(error) or type(error).__name__) from None
        except http.client.HTTPException as error:
            raise NoAnswer(self.url, str(error) or type(error).__name__) from None
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
            raise CommandFailed(f"{origin} is no page of a router's metrics: it lacks {PREFIX}{FIRST}")
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
            with file.open("rb") as opened:
                content, written = _bounded(opened, name), file.stat().st_mtime
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


def _bounded(readable: BinaryIO | http.client.HTTPResponse, origin: str) -> bytes:
    """All that can be read, unless it is too much for a page, or has no end."""
    content = readable.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CommandFailed(
            f"{origin} is no page of a router's metrics: it goes on after {MOST_BYTES >> 20} MiB, and the "
            "rest is not read"
        )
    return content


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
