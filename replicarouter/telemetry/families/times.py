"""How long things take, and how many tokens there were."""

from collections.abc import Iterator

from replicarouter.telemetry.family import Family, Times, counter
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read what was timed and counted of exchanges."""
    metrics = sources.metrics
    for name, text, labels, series in (
        ("queue", "Fully received to leased.", ["model"], metrics.queue),
        ("connect", "Leased to handed to the replica.", ["replica"], metrics.connect),
        ("ttft", "Fully received to first content sent on.", ["model"], metrics.ttft),
        (
            "answer_ttft",
            "Fully received to first answer text after reasoning.",
            ["model"],
            metrics.answer_ttft,
        ),
        ("upstream_ttft", "Start of the attempt to first content.", ["replica"], metrics.upstream_ttft),
        ("itl", "Gap between consecutive content events.", ["replica"], metrics.gaps),
        ("request", "Head read to end.", ["endpoint", "outcome"], metrics.request),
    ):
        yield Times(f"{name}_seconds", text, labels, series)
    yield counter("tokens", "Tokens, as engines count them.", ["model", "kind"], metrics.tokens)
