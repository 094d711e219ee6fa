"""A family of metrics with its values of one moment: what the page writes, and what collectors hand on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

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
        make = CounterMetricFamily if self.counts else GaugeMetricFamily
        family = make(PREFIX + self.name, self.text, labels=self.labels)
        for values, value in self.rows:
            family.add_metric(values, value)
        return family


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of seconds. `name` is without the prefix; `rows` may be read once."""

    name: str
    text: str
    labels: Sequence[str]
    rows: Iterable[tuple[Labels, Histogram]]

    def metric(self) -> Metric:
        """The same as the client library has it."""
        family = HistogramMetricFamily(PREFIX + self.name, self.text, labels=self.labels)
        for values, histogram in self.rows:
            limits = [*(str(bound) for bound in histogram.bounds), "+Inf"]
            buckets = list(zip(limits, accumulate(histogram.counts), strict=True))
            family.add_metric(values, buckets, histogram.total)
        return family


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
