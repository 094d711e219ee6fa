"""vLLM's metrics page. Names checked against pages recorded from 0.32.0; older names are accepted.

With data parallelism one address serves several engines, told apart by the label `engine`.
"""

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
START_TIME = ("process_start_time_seconds",)

# Not expected: the speculation counters exist only with speculation, and the process's start time
# only while one API server process answers for the engine.
EXPECTED = (RUNNING, WAITING, KV_USAGE, PREEMPTIONS, PREFIX_QUERIES, PREFIX_HITS, STEPS)
NAMES = frozenset(name for names in (*EXPECTED, SPEC_ACCEPTED, SPEC_DRAFTS, START_TIME) for name in names)


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
        return EngineReading(
            running=total(samples, RUNNING),
            waiting=total(samples, WAITING),
            kv_usage=largest(samples, KV_USAGE),
            preemptions=total(samples, PREEMPTIONS),
            prefix_queries=total(samples, PREFIX_QUERIES),
            prefix_hits=total(samples, PREFIX_HITS),
            spec_accept_length=_accept_length(samples),
            steps=total(samples, STEPS),
            start_time=largest(samples, START_TIME),
            model=label(samples, "model_name"),
            missing=tuple(names[0] for names in EXPECTED if total(samples, names) is None),
        )


def _accept_length(samples: Samples) -> float | None:
    """Tokens per verification step, averaged since the engine's start: the accepted drafts and the
    one token that the model itself adds."""
    accepted, drafts = total(samples, SPEC_ACCEPTED), total(samples, SPEC_DRAFTS)
    if accepted is None or not drafts:
        return None
    return 1.0 + accepted / drafts
