"""SGLang's metrics page (needs `--enable-metrics`). Names and labels from its documentation and
`metrics/collector.py`; not checked against a running engine."""

from collections.abc import Sequence
from math import inf, isfinite

from replicarouter.engines.aggregate import label, total
from replicarouter.engines.base import EngineReading, Samples

RUNNING = ("sglang:num_running_reqs",)
WAITING = ("sglang:num_queue_reqs",)
KV_USAGE = ("sglang:token_usage",)
RETRACTIONS = ("sglang:num_retracted_requests_total",)
PROMPT_TOKENS = ("sglang:prompt_tokens_total",)
CACHED_TOKENS = ("sglang:cached_tokens_total",)
ACCEPT_LENGTH = ("sglang:spec_accept_length",)
FORWARD_PASSES = ("sglang:cuda_graph_passes_total",)
KV_CAPACITY = ("sglang:max_total_num_tokens",)

# Only gauges: SGLang's counters appear with the first request that moves them.
EXPECTED = (RUNNING, WAITING, KV_USAGE)
NAMES = frozenset(
    name
    for names in (
        *EXPECTED,
        RETRACTIONS,
        PROMPT_TOKENS,
        CACHED_TOKENS,
        ACCEPT_LENGTH,
        FORWARD_PASSES,
        KV_CAPACITY,
    )
    for name in names
)


class SglangDialect:
    """Reads SGLang: scheduler metrics are summed over data-parallel ranks, `kv_usage` is the
    fullest rank's, because retraction begins there and a caller cannot choose the rank.

    `prefix_queries` and `prefix_hits` are prompt tokens and cached prompt tokens, which is what
    vLLM counts under these names. The page carries no start time.
    """

    name = "sglang"

    def recognises(self, samples: Samples) -> bool:
        """Tell whether any SGLang metric is among the samples."""
        return any(name.startswith("sglang:") for name in samples)

    def read(self, samples: Samples) -> EngineReading:
        """Turn the samples into a reading."""
        usage = _by_rank(samples, KV_USAGE)
        accept_lengths = [length for length in _by_rank(samples, ACCEPT_LENGTH) if length > 0]
        return EngineReading(
            running=_summed(_by_rank(samples, RUNNING)),
            waiting=_summed(_by_rank(samples, WAITING)),
            kv_usage=max(usage) if usage else None,
            preemptions=_summed(_by_rank(samples, RETRACTIONS)),
            prefix_queries=total(samples, PROMPT_TOKENS),
            prefix_hits=total(samples, CACHED_TOKENS),
            # The gauge stands at zero while speculation is off.
            spec_accept_length=(sum(accept_lengths) / len(accept_lengths) if accept_lengths else None),
            steps=_summed(_by_rank(samples, FORWARD_PASSES)),
            kv_capacity=_capacity(_by_rank(samples, KV_CAPACITY)),
            model=label(samples, "model_name"),
            missing=tuple(names[0] for names in EXPECTED if not _by_rank(samples, names)),
        )


def _by_rank(samples: Samples, names: Sequence[str]) -> list[float]:
    """Return one value for each data-parallel rank.

    With `--enable-metrics-for-all-schedulers` the tensor- and pipeline-parallel members of a rank
    each report the same requests, so the largest member speaks for the rank; series that differ
    otherwise (the `mode` of a forward pass) add up within a member. With priority scheduling the
    total stands under an empty `priority`; the series of each priority would count it again.
    """
    members: dict[tuple[str, str, str, str], float] = {}
    for name in names:
        for labels, value in samples.get(name, ()):
            if labels.get("priority") or not isfinite(value):
                continue
            member = (
                labels.get("dp_rank", ""),
                labels.get("tp_rank", ""),
                labels.get("pp_rank", ""),
                labels.get("moe_ep_rank", ""),
            )
            members[member] = members.get(member, 0.0) + value
    ranks: dict[str, float] = {}
    for (rank, *_), value in members.items():
        ranks[rank] = max(value, ranks.get(rank, value))
    return list(ranks.values())


def _summed(ranks: Sequence[float]) -> float | None:
    return sum(ranks) if ranks else None


def _capacity(ranks: Sequence[float]) -> float | None:
    """The sum over the ranks; unknown if it is no size."""
    tokens = sum(ranks)
    return tokens if 0 < tokens < inf else None
