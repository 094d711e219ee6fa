"""A family of metrics with its values of one moment: what the page writes, and what collectors hand on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from replicarouter.cells import Histogram

PREFIX = "replicarouter_"

Labels = tuple[str, ...]
"""The values of the labels, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Gauges, or counters if it `counts`. `name` is without the prefix and without the `_total` of counters;
    `rows` may be read once."""

    name: str
    text: str
    labels: Sequence[str]
    rows: Iterable[tuple[Labels, float]]
    counts: bool = False

    def metric(self) -> Metric:
        """The same as the client library has it."""
        metric = Metric(PREFIX + self.name, self.text, "counter" if self.counts else "gauge")
        series, names = f"{metric.name}{'_total' if self.counts else ''}", self.labels
        metric.samples = [
            Sample(series, dict(zip(names, values, strict=True)), value) for values, value in self.rows
        ]
        return metric


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of seconds. `name` is without the prefix; `rows` may be read once."""

    name: str
    text: str
    labels: Sequence[str]
    rows: Iterable[tuple[Labels, Histogram]]

    def metric(self) -> Metric:
        """The same as the client library has it."""
        metric = Metric(PREFIX + self.name, self.text, "histogram")
        bucket, count, total = (f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
        for values, histogram in self.rows:
            labels = dict(zip(self.labels, values, strict=True))
            limits = [*map(str, histogram.bounds), "+Inf"]
            below = list(accumulate(histogram.counts))
            metric.samples += [
                *(Sample(bucket, {**labels, "le": limit}, n) for limit, n in zip(limits, below, strict=True)),
                Sample(count, labels, below[-1]),
                Sample(total, labels, histogram.total),
            ]
        return metric


Family = Numbers | Times


def gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Numbers:
    """What goes up and down."""
    return Numbers(name, text, labels, rows)


def number(name: str, text: str, value: float) -> Numbers:
    """A gauge without labels."""
    return Numbers(name, text, (), (((), value),))


def counter(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Numbers:
    """What only goes up; `name` is without `_total`."""
    return Numbers(name, text, labels, rows, counts=True)
