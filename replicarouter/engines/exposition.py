"""Reads the Prometheus text format, and only the metrics that somebody wants.

A vLLM page is about 50 kB, of which some ten lines matter, and each replica's is read every second.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from replicarouter.engines.base import Samples

_PAIR = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*,?[ \t]*')
_ESCAPE = re.compile(r"\\(.)")

PIECE = 32768
"""Bytes of a page that are read in one step; a longer line is of no interest."""

MOST_SAMPLES = 20_000
"""Samples that are taken from one page, of about ten for each engine behind it."""

MOST_KEPT = 1024
"""Different labels of samples that are kept read; a fleet has some ten for each of its models."""

MOST_KEPT_TEXT = 4096
"""Characters of labels above which they are read each time."""

Sample = tuple[Mapping[str, str], float]


class PageParser:
    """Finds the samples of a fixed set of metric names in exposition pages.

    It never raises: a line that is not a sample is skipped and the rest of the page is still read. Labels are
    the same from page to page and between replicas, and are read once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._lines = re.compile(rf"\n({_alternatives(names)})([{{ \t].*)")
        self._labels: dict[str, Mapping[str, str]] = {}

    def parse(self, page: bytes) -> Samples:
        """Return the wanted names' samples in the page's order, NaN and infinities included."""
        samples: Samples = {}
        for samples in self.steps(page):  # noqa: B007
            pass
        return samples

    def steps(self, page: bytes) -> Iterator[Samples]:
        """The same, in steps of less than 2 ms whatever the page; each yields what was found so far."""
        samples: dict[str, list[Sample]] = {}
        left = MOST_SAMPLES
        for piece in _pieces(page):
            found = self._lines.findall("\n" + piece.decode("utf-8", "replace"))
            for name, rest in found[:left]:
                # The last brace of a line ends its labels, unless there is an exemplar behind the value.
                end = rest.rfind("}") + 1
                labels = self._labels.get(rest[:end])
                sample = self._read(rest) if labels is None else _valued(labels, rest[end:])
                if sample is not None:
                    samples.setdefault(name, []).append(sample)
            yield samples
            left -= len(found)
            if left <= 0:
                return

    def _read(self, rest: str) -> Sample | None:
        """Read what follows a metric's name: `{labels} value [timestamp]`; its labels are kept."""
        labels, end = _labels(rest)
        if end < 0:
            return None
        text = rest[:end]
        if len(text) <= MOST_KEPT_TEXT:
            if len(self._labels) >= MOST_KEPT:
                self._labels.clear()
            self._labels[text] = labels
        return _valued(labels, rest[end:])


def _alternatives(names: Iterable[str]) -> str:
    # Grouped by namespace, because one flat list of names costs the regex engine twice the time.
    families: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        namespace, colon, rest = name.rpartition(":")
        families.setdefault(namespace + colon, []).append(re.escape(rest))
    return "|".join(f"{re.escape(family)}(?:{'|'.join(rests)})" for family, rests in families.items())


def _pieces(page: bytes) -> Iterator[bytes]:
    """The page's lines, so many at a time as are no more than `PIECE` bytes."""
    start, size = 0, len(page)
    while start < size:
        end = start + PIECE
        if end < size:
            end = page.rfind(b"\n", start, end)
            if end < 0:
                start = page.find(b"\n", start + PIECE) + 1
                if not start:
                    return
                continue
        yield page[start:end]
        start = end + 1


def _labels(rest: str) -> tuple[dict[str, str], int]:
    """The labels before a value, and where they end; below 0 when they do not."""
    labels: dict[str, str] = {}
    position = len(rest) - len(rest.lstrip(" \t"))
    if not rest.startswith("{", position):
        return labels, 0
    position += 1
    while (pair := _PAIR.match(rest, position)) is not None:
        labels[pair[1]] = _unescaped(pair[2])
        position = pair.end()
    return labels, position + 1 if rest.startswith("}", position) else -1


def _valued(labels: Mapping[str, str], rest: str) -> Sample | None:
    """The sample with these labels; `rest` is ` value [timestamp]`."""
    fields = rest.split(None, 1)
    # Python's float() also takes digit groups such as 1_000, which the format does not know.
    if not fields or "_" in fields[0]:
        return None
    try:
        return labels, float(fields[0])
    except ValueError:
        return None


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)
