"""The engine's metrics page: vLLM 0.32.0's names, labels and order, in Prometheus' text format."""

from collections.abc import Iterable

from replicarouter.simulator.measures import Histogram
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.scheduler import Scheduler

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class MetricsPage:
    """Renders the page of one engine; `started` is the Unix time of its start. `sleep_level` 0 is awake."""

    def __init__(self, options: EngineOptions, scheduler: Scheduler, started: float) -> None:
        self._scheduler = scheduler
        self._drafted = options.speculative_tokens
        self._measures = scheduler.measures
        self._started = started
        self._held: bytes | None = None
        self.sleep_level = 0
        model = options.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._model = f'model_name="{model}"'
        self._labels = f'engine="0",{self._model}'
        blocks = {
            "block_size": options.block_size,
            "cache_dtype": options.kv_cache_dtype,
            "enable_prefix_caching": True,
            "engine": 0,
            "kv_cache_size_tokens": options.kv_blocks * options.block_size,
            "num_cpu_blocks": None,
            "num_gpu_blocks": options.kv_blocks,
            "num_gpu_blocks_override": options.kv_blocks,
        }
        self._cache_labels = ",".join(f'{name}="{value}"' for name, value in blocks.items())
        self._without = without = frozenset(options.without_metrics)
        if without and (unknown := without - {name for name, _ in _families(self._page())}):
            raise ValueError(f"without_metrics is {sorted(unknown)}; accepted: families of the page")

    def hold(self) -> None:
        """Stand still from now on, as when the engine core tells its numbers no more."""
        self._held = self._held or self.render()

    def release(self) -> None:
        """Go on."""
        self._held = None

    def render(self) -> bytes:
        """The whole page, as the numbers are now or when they began to be held."""
        if self._held is not None:
            return self._held
        page = self._page()
        if self._without:
            page = "".join(text for name, text in _families(page) if name not in self._without)
        return page.encode()

    def _page(self) -> str:
        """All families."""
        parts = [*self._process(), *self._gauges(), *self._counters(), *self._histograms()]
        if self._drafted:
            parts += self._speculation()
        parts.append(_family("vllm:cache_config_info", "gauge", "The KV cache as configured."))
        parts.append(f"vllm:cache_config_info{{{self._cache_labels}}} 1.0\n")
        return "".join(parts)

    def _process(self) -> Iterable[str]:
        name = "process_start_time_seconds"
        yield _family(name, "gauge", "When the engine started, in Unix seconds.")
        yield f"{name} {self._started!r}\n"

    def _gauges(self) -> Iterable[str]:
        scheduler = self._scheduler
        yield self._one("num_requests_running", "gauge", "Sequences in the batch.", scheduler.running)
        yield self._one("num_requests_waiting", "gauge", "Sequences queued.", scheduler.waiting)
        name = "vllm:num_requests_waiting_by_reason"
        yield _family(name, "gauge", "Sequences queued, by what they wait for.")
        for reason, value in (("capacity", scheduler.waiting), ("deferred", 0)):
            yield f'{name}{{{self._labels},reason="{reason}"}} {float(value)}\n'
        name = "vllm:engine_sleep_state"
        yield _family(name, "gauge", "1 for the state the engine is in.")
        for level, state in enumerate(("awake", "weights_offloaded", "discard_all")):
            value = level == self.sleep_level
            yield f'{name}{{{self._labels},sleep_state="{state}"}} {float(value)}\n'
        usage = scheduler.blocks.usage
        yield self._one("kv_cache_usage_perc", "gauge", "Used share of the KV cache.", usage)

    def _counters(self) -> Iterable[str]:
        measures = self._measures
        for name, help_text, value in (
            ("prefix_cache_queries", "Prompt tokens looked up.", measures.prefix_queries),
            ("prefix_cache_hits", "Prompt tokens found.", measures.prefix_hits),
            ("num_preemptions", "Sequences sent back to the queue.", measures.preemptions),
            ("prompt_tokens", "Prompt tokens processed.", measures.prompt_tokens),
            ("prompt_tokens_cached", "Prompt tokens not computed.", measures.cached_tokens),
            ("generation_tokens", "Tokens generated.", measures.generation_tokens),
        ):
            yield self._one(f"{name}_total", "counter", help_text, value)
        name = "vllm:admission_rejections_total"
        yield _family(name, "counter", "Requests refused for a full queue, by limit.")
        for limit, count in (("max_num_queued_reqs", measures.rejections), ("max_num_queued_tokens", 0)):
            yield f'{name}{{{self._model},reason="{limit}"}} {float(count)}\n'
        name = "vllm:request_success_total"
        yield _family(name, "counter", "Sequences ended, by reason.")
        for reason, count in measures.finished.items():
            labels = f'engine="0",finished_reason="{reason}",{self._model}'
            yield f"{name}{{{labels}}} {float(count)}\n"

    def _speculation(self) -> Iterable[str]:
        """Counters that exist only with speculative decoding."""
        measures = self._measures
        accepted = measures.spec_accepted_at
        for name, help_text, value in (
            ("drafts", "Drafts verified.", measures.spec_drafts),
            ("draft_tokens", "Tokens drafted.", measures.spec_draft_tokens),
            ("accepted_tokens", "Drafted tokens accepted.", accepted.total()),
        ):
            yield self._one(f"spec_decode_num_{name}_total", "counter", help_text, value)
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        yield _family(name, "counter", "Drafted tokens accepted, by position in the draft.")
        for position in range(self._drafted):
            yield f'{name}{{{self._labels},position="{position}"}} {float(accepted[position])}\n'

    def _histograms(self) -> Iterable[str]:
        measures = self._measures
        for name, help_text, histogram in (
            ("iteration_tokens_total", "Tokens processed in a step.", measures.step_tokens),
            ("time_to_first_token_seconds", "Arrival to first token.", measures.first_token),
            ("inter_token_latency_seconds", "Token to token.", measures.token_gap),
            ("e2e_request_latency_seconds", "Arrival to last token.", measures.request),
            ("request_queue_time_seconds", "Arrival to first step.", measures.queue),
        ):
            yield from self._histogram(f"vllm:{name}", help_text, histogram)

    def _histogram(self, name: str, help_text: str, histogram: Histogram) -> Iterable[str]:
        yield _family(name, "histogram", help_text)
        seen = 0
        bounds = (*map(str, histogram.bounds), "+Inf")
        for bound, count in zip(bounds, histogram.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{engine="0",le="{bound}",{self._model}}} {float(seen)}\n'
        yield f"{name}_count{{{self._labels}}} {float(seen)}\n"
        yield f"{name}_sum{{{self._labels}}} {float(histogram.total)}\n"

    def _one(self, name: str, kind: str, help_text: str, value: float) -> str:
        name = f"vllm:{name}"
        return f"{_family(name, kind, help_text)}{name}{{{self._labels}}} {float(value)}\n"


def _families(page: str) -> Iterable[tuple[str, str]]:
    """The families of a page, each with its name."""
    return ((text.split(" ", 1)[0], f"# HELP {text}") for text in page.split("# HELP ")[1:])


def _family(name: str, kind: str, help_text: str) -> str:
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
