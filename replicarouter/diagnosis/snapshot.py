"""One reading of the router's metrics page, and look-ups in it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import Metric

PREFIX = "replicarouter_"

FIRST, LAST = "requests_receiving", "event_loop_lag_seconds"
"""Series that every page of a router has, one at its beginning and one at its end."""

Row = tuple[Mapping[str, str], float]
"""Labels and value of a sample."""


def without_buckets(page: str) -> str:
    """A page in the text format without what no look-up asks for, which is most of it."""
    return "\n".join(line for line in page.split("\n") if "_bucket{" not in line)


class Snapshot:
    """The samples of one page by name, without the common prefix. `at` is in seconds on any one clock.

    Of histograms there are sums and counts only. A value that is no finite number is left out.
    """

    def __init__(self, samples: Mapping[str, Sequence[Row]], at: float) -> None:
        self.at = at
        self._samples = samples

    @classmethod
    def of(cls, families: Iterable[Metric], at: float) -> "Snapshot":
        """Take over what a collector yields, or what the parser of the text format makes of a page."""
        samples: dict[str, list[Row]] = {}
        for family in families:
            if not family.name.startswith(PREFIX):
                continue
            for sample in family.samples:
                if sample.name.endswith("_bucket") or not math.isfinite(sample.value):
                    continue
                name = sample.name.removeprefix(PREFIX)
                samples.setdefault(name, []).append((sample.labels, float(sample.value)))
        return cls(samples, at)

    def __repr__(self) -> str:
        return f"<Snapshot at {self.at:g}: {len(self._samples)} series>"

    def moved(self, at: float) -> "Snapshot":
        """The same page at another time."""
        return Snapshot(self._samples, at)

    @property
    def written(self) -> float | None:
        """The Unix time at which its router wrote it; None where the page does not tell."""
        return self.value("time_seconds")

    @property
    def of_router(self) -> bool:
        """Whether a router wrote this page."""
        return FIRST in self._samples

    @property
    def whole(self) -> bool:
        """Whether the page goes on to its end."""
        return LAST in self._samples

    def samples(self, name: str) -> Sequence[Row]:
        """All samples of a series, in the page's order."""
        return self._samples.get(name, ())

    def rows(self, name: str, **labels: str) -> Iterator[Row]:
        """The samples that have these labels."""
        if not labels:
            return iter(self.samples(name))
        wanted = labels.items()
        return (row for row in self.samples(name) if wanted <= row[0].items())

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples that have these labels; None without any."""
        values = [value for _, value in self.rows(name, **labels)]
        return sum(values) if values else None

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 without any."""
        return self.value(name, **labels) or 0.0

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Those sums by the values of one label."""
        sums: dict[str, float] = {}
        for row, value in self.rows(name, **labels):
            key = row.get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums
