"""What the engines say of themselves. A gauge goes with its reading once that is old, a counter stays."""

from collections.abc import Callable, Iterable, Iterator

from replicarouter.fleet.replica import Reading, Replica
from replicarouter.telemetry.family import Family, Labels, counter, gauge
from replicarouter.telemetry.sources import Sources

Read = Callable[[Reading], float | None]
"""Takes one value from a reading; None when the engine does not say."""

GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("engine_requests_running", "Requests the engine works on.", lambda reading: reading.engine.running),
    ("engine_requests_waiting", "Requests in the engine's queue.", lambda reading: reading.engine.waiting),
    ("engine_kv_usage_ratio", "Used share of the KV cache.", lambda reading: reading.engine.kv_usage),
    (
        "engine_spec_accept_length",
        "Tokens accepted per speculative step.",
        lambda reading: reading.engine.spec_accept_length,
    ),
    (
        "engine_spec_draft_length",
        "Tokens drafted per speculative step; at most one more than these is accepted.",
        lambda reading: reading.engine.spec_draft_length,
    ),
    (
        "engine_series_missing",
        "Series this engine should have and lacks.",
        lambda reading: len(reading.engine.missing),
    ),
    (
        "requests_unexplained",
        "Sent + streaming - running - waiting, at the time of the reading.",
        lambda reading: reading.unexplained,
    ),
)

COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("engine_steps", "Steps of the engine's scheduler.", lambda reading: reading.engine.steps),
    ("engine_preemptions", "Preempted requests.", lambda reading: reading.engine.preemptions),
    (
        "engine_prefix_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda reading: reading.engine.prefix_queries,
    ),
    (
        "engine_prefix_hits",
        "Prompt tokens found in the prefix cache.",
        lambda reading: reading.engine.prefix_hits,
    ),
)


def read(sources: Sources) -> Iterator[Family]:
    """Read the last readings."""
    now = sources.clock()
    known = [(replica, reading) for replica in sources.fleet if (reading := replica.reading) is not None]
    fresh = [(replica, reading) for replica, reading in known if now - reading.at <= sources.fresh]
    for name, text, take in GAUGES:
        yield gauge(name, text, ["replica"], _rows(fresh, take))
    yield gauge(
        "engine_series_absent",
        "1 for each series this engine should have and lacks.",
        ["replica", "kind"],
        [((replica.name, series), 1) for replica, reading in fresh for series in reading.engine.missing],
    )
    yield gauge(
        "engine_scrape_age_seconds",
        "Age of the last engine reading.",
        ["replica"],
        [((replica.name,), now - reading.at) for replica, reading in known],
    )
    for name, text, take in COUNTERS:
        yield counter(name, text, ["replica"], _rows(known, take))
    restarts = [((replica.name,), replica.restarts) for replica in sources.fleet]
    yield counter("engine_restarts", "Times an engine's counters started anew.", ["replica"], restarts)
    yield gauge(
        "engine_info",
        "What runs behind a replica.",
        ["replica", "engine", "version", "model"],
        [
            ((replica.name, replica.engine, replica.engine_version, reading.engine.model), 1)
            for replica, reading in known
        ],
    )
    yield gauge(
        "engine_cache_dtype_info",
        "What the engine's KV cache holds, in its own words.",
        ["replica", "kind"],
        [
            ((replica.name, reading.engine.cache_dtype), 1)
            for replica, reading in known
            if reading.engine.cache_dtype
        ],
    )
    yield gauge(
        "engine_max_length_tokens",
        "Longest prompt and answer together, of the model that takes least.",
        ["replica"],
        [
            ((replica.name,), length)
            for replica in sources.fleet
            if (length := replica.max_length) is not None
        ],
    )


def _rows(readings: Iterable[tuple[Replica, Reading]], take: Read) -> list[tuple[Labels, float]]:
    return [((replica.name,), value) for replica, reading in readings if (value := take(reading)) is not None]
