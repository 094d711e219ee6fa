"""The router's metrics as diagnosis reads them: the families that the page has, histograms without their
buckets, which nobody here asks for and which are most of a page."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from replicarouter.telemetry.family import PREFIX, Family, Times


def without_buckets(families: Iterable[Family]) -> Iterator[Metric]:
    """Each family as the client library has it; of a histogram the sum and the count."""
    for family in families:
        if isinstance(family, Times):
            metric = Metric(PREFIX + family.name, family.text, "histogram")
            for values, histogram in family.rows:
                labels = dict(zip(family.labels, values, strict=True))
                metric.add_sample(f"{metric.name}_sum", labels, histogram.total)
                metric.add_sample(f"{metric.name}_count", labels, float(histogram.count))
            yield metric
        else:
            yield family.metric()
