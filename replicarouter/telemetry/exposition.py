"""The metrics page in the Prometheus text format, as the client library would write it, at a fraction of the
cost: the text of labels is made once, and histograms are written from their arrays."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.utils import floatToGoString

from replicarouter.cells import Histogram
from replicarouter.telemetry.family import PREFIX, Family, Labels, Numbers, Times

CONTENT_TYPE = CONTENT_TYPE_LATEST

SPARE = 64
"""Texts of a family that may be kept beside those of its last rows."""

PLAIN_BELOW = 1e6
"""Numbers from here on are written in another way than Python writes them."""

_write_large: Callable[[float], str] = floatToGoString

Texts = dict[Labels, str]
"""What is written for a row, up to its values."""


class Exposition:
    """Writes pages of the families that `read` yields."""

    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read
        self._heads: dict[str, str] = {}
        self._texts: dict[str, Texts] = {}

    @property
    def kept(self) -> int:
        """Texts of rows that are kept for the next page."""
        return sum(map(len, self._texts.values()))

    def page(self) -> bytes:
        """Everything as it is now."""
        out: list[str] = []
        for family in self._read():
            name = family.name
            texts = self._texts.get(name)
            if texts is None:
                self._heads[name] = _head(family)
                texts = self._texts[name] = {}
            out.append(self._heads[name])
            before = len(out)
            if isinstance(family, Times):
                _write_times(family, texts, out)
            else:
                _write_numbers(family, texts, out)
            if len(texts) > 2 * (len(out) - before) + SPARE:
                # Most are of rows that are gone, such as replicas that have left.
                texts.clear()
        return "".join(out).encode("utf-8", "replace")


def _write_numbers(family: Numbers, texts: Texts, out: list[str]) -> None:
    for labels, value in family.rows:
        text = texts.get(labels)
        if text is None:
            text = texts[labels] = _sample(_series(family), family.labels, labels)
        out.append(f"{text}{number(value)}\n")


def _write_times(family: Times, texts: Texts, out: list[str]) -> None:
    for labels, histogram in family.rows:
        text = texts.get(labels)
        if text is None:
            text = texts[labels] = _form(family, labels, histogram)
        counts = [number(count) for count in accumulate(histogram.counts)]
        out.append(text % (*counts, counts[-1], number(histogram.total)))


def number(value: float) -> str:
    """A value as the format has it."""
    if -PLAIN_BELOW < value < PLAIN_BELOW:
        # Most are counts, and a float takes twice as long to write as a row in all.
        return f"{value:d}.0" if isinstance(value, int) else repr(value)
    return _write_large(value)


def _head(family: Family) -> str:
    name = _series(family)
    kind = "histogram" if isinstance(family, Times) else "counter" if family.counts else "gauge"
    text = family.text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _series(family: Family) -> str:
    counts = isinstance(family, Numbers) and family.counts
    return f"{PREFIX}{family.name}{'_total' if counts else ''}"


def _form(family: Times, labels: Labels, histogram: Histogram) -> str:
    """The lines of one histogram, with a place for each value."""
    name = _series(family)
    limits = [*map(number, histogram.bounds), "+Inf"]
    lines = [
        *(_sample(f"{name}_bucket", [*family.labels, "le"], (*labels, limit)) for limit in limits),
        _sample(f"{name}_count", family.labels, labels),
        _sample(f"{name}_sum", family.labels, labels),
    ]
    return "".join(f"{line.replace('%', '%%')}%s\n" for line in lines)


def _sample(name: str, names: Sequence[str], values: Labels) -> str:
    """A line up to its value."""
    pairs = sorted(zip(names, values, strict=True))
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
    return f"{name}{{{labels}}} " if labels else f"{name} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
