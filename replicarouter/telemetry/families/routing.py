"""What policies did and remember."""

from collections.abc import Iterator

from replicarouter.telemetry.family import Family, counter, gauge
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read what the policies counted, and which they are."""
    metrics = sources.metrics
    yield gauge(
        "policy_info",
        "Which policy a model's pool goes by.",
        ["model", "policy"],
        [((model, sources.policy_of(model)), 1) for model in sources.fleet.pools],
    )
    for name, text, labels, rows in (
        ("affinity", "Affinity of requests.", ["policy", "result"], metrics.affinity),
        (
            "affinity_cached_characters",
            "Characters of prompts that the policy expected in the chosen replica's cache.",
            ["policy"],
            metrics.cached_characters,
        ),
        ("shadow", "Affinity as the shadow policy would have had it.", ["policy", "result"], metrics.shadow),
        (
            "shadow_choices",
            "Whether the shadow policy would have chosen the same replica.",
            ["policy", "result"],
            metrics.shadow_choices,
        ),
        (
            "shadow_cached_characters",
            "Characters of prompts that the shadow policy expected in its replica's cache.",
            ["policy"],
            metrics.shadow_cached_characters,
        ),
        (
            "routed_characters",
            "Characters of prompts by the replica that the policy, real or shadow, chose.",
            ["policy", "replica"],
            metrics.routed_characters,
        ),
    ):
        yield counter(name, text, labels, rows)
    yield from _memories(sources)


def _memories(sources: Sources) -> Iterator[Family]:
    memories = sources.memories().items()
    yield gauge(
        "affinity_memory_entries",
        "Keys, or blocks of prompts, that the policy remembers.",
        ["model"],
        [((model,), memory.entries) for model, memory in memories],
    )
    yield gauge(
        "affinity_memory_bytes",
        "What they take.",
        ["model"],
        [((model,), memory.bytes) for model, memory in memories],
    )
    yield counter(
        "affinity_forgotten",
        "Of them, dropped: for a replica's capacity, or for the policy's own bound.",
        ["model", "reason"],
        [
            ((model, reason), count)
            for model, memory in memories
            for reason, count in (("capacity", memory.outlived), ("bound", memory.cut))
        ],
    )
