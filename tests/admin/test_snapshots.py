"""Diagnosis sees the same in the short form of the metrics as in the long one."""

from replicarouter.admin.snapshots import without_buckets
from replicarouter.telemetry.collector import RouterCollector
from tests.telemetry.conftest import Watched


def test_all_but_the_buckets_is_there(watched: Watched) -> None:
    for replica in "ab":
        watched.metrics.gaps.of((replica,)).observe(0.02)
    watched.metrics.request.of(("/v1/chat/completions", "ok")).observe(1.5)
    collector = RouterCollector(watched.sources)
    short = [sample for metric in without_buckets(collector.families()) for sample in metric.samples]
    long = [sample for metric in collector.collect() for sample in metric.samples]
    assert len(short) < len(long)
    kept = [sample for sample in long if not sample.name.endswith("_bucket")]
    key = lambda sample: (sample.name, sorted(sample.labels.items()))  # noqa: E731
    assert sorted(short, key=key) == sorted(kept, key=key)
