"""vLLM's metrics page. Names checked against pages recorded from 0.32.0; older names are accepted.

With data parallelism one address serves several engines, told apart by the label `engine`.
"""

from collections.abc import Mapping

from replicarouter.engines.aggregate import label, largest, total
from replicarouter.engines.base import EngineReading, Samples

RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
PREEMPTIONS = ("vllm:num_preemptions_total",)
PREFIX_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
PREFIX_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
STEPS = ("vllm:iteration_tokens_total_count",)
SPEC_ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total",)
SPEC_DRAFTS = ("vllm:spec_decode_num_drafts_total",)
SPEC_DRAFTED = ("vllm:spec_decode_num_draft_tokens_total",)
START_TIME = ("process_start_time_seconds",)
CACHE_INFO = "vllm:cache_config_info"

# Not expected: the speculation counters exist only with speculation, and the process's start time and
# the cache's configuration only while one API server process answers for the engine.
EXPECTED = (RUNNING, WAITING, KV_USAGE, PREEMPTIONS, PREFIX_QUERIES, PREFIX_HITS, STEPS)
NAMES = frozenset(
    name
    for names in (*EXPECTED, SPEC_ACCEPTED, SPEC_DRAFTS, SPEC_DRAFTED, START_TIME, (CACHE_INFO,))
    for name in names
)

_MOST_DIGITS = 15
"""Of a number of tokens or blocks. A float holds those exactly, and a product or sum of a few of them."""

_MOST_TEXT = 64
"""Characters of a label that are taken over."""


class VllmDialect:
    """Reads vLLM: counts and counters are summed over the engines, `kv_usage` is the fullest one's.

    The fullest, because preemption begins there and a caller cannot choose the engine; a mean would
    hide one that is out of space behind an empty neighbour.
    """

    name = "vllm"

    def recognises(self, samples: Samples) -> bool:
        """Tell whether any vLLM metric is among the samples."""
        return any(name.startswith("vllm:") for name in samples)

    def read(self, samples: Samples) -> EngineReading:
        """Turn the samples into a reading."""
        drafts = total(samples, SPEC_DRAFTS)
        accepted, drafted = total(samples, SPEC_ACCEPTED), total(samples, SPEC_DRAFTED)
        found = (
            running := total(samples, RUNNING),
            waiting := total(samples, WAITING),
            kv_usage := largest(samples, KV_USAGE),
            preemptions := total(samples, PREEMPTIONS),
            prefix_queries := total(samples, PREFIX_QUERIES),
            prefix_hits := total(samples, PREFIX_HITS),
            steps := total(samples, STEPS),
        )
        return EngineReading(
            running=running,
            waiting=waiting,
            kv_usage=kv_usage,
            preemptions=preemptions,
            prefix_queries=prefix_queries,
            prefix_hits=prefix_hits,
            # Besides the accepted drafts, each verification yields one token of the model itself.
            spec_accept_length=None if accepted is None or not drafts else 1.0 + accepted / drafts,
            spec_draft_length=None if drafted is None or not drafts else drafted / drafts,
            steps=steps,
            start_time=largest(samples, START_TIME),
            kv_capacity=_kv_capacity(samples),
            model=label(samples, "model_name"),
            cache_dtype=_cache_dtype(samples),
            missing=tuple(names[0] for names, value in zip(EXPECTED, found, strict=True) if value is None),
        )


def _cache_dtype(samples: Samples) -> str:
    """What the KV cache holds; "auto" is what the model's weights are."""
    infos = samples.get(CACHE_INFO, ())
    return next((text[:_MOST_TEXT] for labels, _ in infos if (text := labels.get("cache_dtype"))), "")


def _kv_capacity(samples: Samples) -> float | None:
    """Tokens that the KV caches hold, from labels whose values are texts, "None" among them.

    `kv_cache_size_tokens` is each engine's own. Releases without it tell `num_gpu_blocks` alone, which
    with data parallelism is the sum over the engines, on the line of each of them.
    """
    infos = [labels for labels, _ in samples.get(CACHE_INFO, ())]
    if sizes := [size for labels in infos if (size := _whole(labels, "kv_cache_size_tokens"))]:
        return float(sum(sizes))
    totals = [_whole(labels, "block_size") * _whole(labels, "num_gpu_blocks") for labels in infos]
    return float(max(totals, default=0)) or None


def _whole(labels: Mapping[str, str], name: str) -> int:
    """The whole number in a label, 0 when it holds none, or one that no cache can have."""
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
