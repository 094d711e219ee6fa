"""Reads the Prometheus text format, and only the metrics that somebody wants.

A vLLM page is about 50 kB, of which some ten lines matter, and each replica's is read every second.
"""

import re
from collections.abc import Iterable

from replicarouter.engines.base import Samples

_PAIR = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*,?[ \t]*')
_ESCAPE = re.compile(r"\\(.)")


class PageParser:
    """Finds the samples of a fixed set of metric names in exposition pages.

    It never raises: a line that is not a sample is skipped and the rest of the page is still read.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._lines = re.compile(rf"\n({_alternatives(names)})([{{ \t].*)")

    def parse(self, page: bytes) -> Samples:
        """Return the wanted names' samples in the page's order, NaN and infinities included."""
        text = "\n" + page.decode("utf-8", "replace")
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, rest in self._lines.findall(text):
            sample = _sample(rest)
            if sample is not None:
                samples.setdefault(name, []).append(sample)
        return samples


def _alternatives(names: Iterable[str]) -> str:
    # Grouped by namespace, because one flat list of names costs the regex engine twice the time.
    families: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        namespace, colon, rest = name.rpartition(":")
        families.setdefault(namespace + colon, []).append(re.escape(rest))
    return "|".join(f"{re.escape(family)}(?:{'|'.join(rests)})" for family, rests in families.items())


def _sample(rest: str) -> tuple[dict[str, str], float] | None:
    """Read what follows a metric's name: `{labels} value [timestamp]`."""
    labels: dict[str, str] = {}
    position = 0
    rest = rest.lstrip(" \t")
    if rest.startswith("{"):
        position = 1
        while (pair := _PAIR.match(rest, position)) is not None:
            labels[pair[1]] = _unescaped(pair[2])
            position = pair.end()
        if not rest.startswith("}", position):
            return None
        position += 1
    fields = rest[position:].split(None, 1)
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
