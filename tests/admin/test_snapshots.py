"""Diagnosis sees the same in the short form of the metrics as in the long one."""

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric

from replicarouter.admin.snapshots import without_buckets
from replicarouter.telemetry.collector import RouterCollector
from tests.telemetry.conftest import Watched

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(families: Iterable[Metric]) -> Samples:
    """The values by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_all_but_the_buckets_is_there(watched: Watched) -> None:
    # What a process uses changes between two readings: one is taken for both.
    process = list(watched.process())
    assert process
    watched.process = lambda: process
    for replica in "ab":
        watched.metrics.gaps.of((replica,)).observe(0.02)
    watched.metrics.request.of(("/v1/chat/completions", "ok")).observe(1.5)
    collector = RouterCollector(watched.sources)
    long = samples(collector.collect())
    kept = {key: value for key, value in long.items() if not key[0].endswith("_bucket")}
    assert len(kept) < len(long)
    assert samples(without_buckets(collector.families())) == kept
