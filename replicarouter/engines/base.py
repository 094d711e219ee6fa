"""The contract of an engine dialect: how one engine software's `/metrics` page is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""Metric name → its samples as (labels, value), as the exposition page lists them."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One scrape of one replica, summed over the engines behind its address.

    Counts are requests, `kv_usage` is a ratio 0 to 1, counters grow from the engine's start, `kv_capacity`
    is in tokens. `spec_accept_length` and `spec_draft_length` are tokens per verification step: what came of
    it, the model's own token included, and what was drafted for it. `cache_dtype` is what the KV cache holds,
    in the engine's words.
    `None`, or an empty text: this engine does not say.
    """

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    spec_accept_length: float | None = None
    spec_draft_length: float | None = None
    steps: float | None = None
    start_time: float | None = None
    kv_capacity: float | None = None
    model: str = ""
    cache_dtype: str = ""
    missing: tuple[str, ...] = ()


class Dialect(Protocol):
    """How to read one engine software."""

    name: str

    def recognises(self, samples: Samples) -> bool:
        """Tell whether a page comes from this engine."""

    def read(self, samples: Samples) -> EngineReading:
        """Turn a page into a reading; names that this engine should have and lacks go to `missing`."""
