"""Everything as Prometheus metrics, read when somebody scrapes. Names and labels are the contract's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from replicarouter.cells import Histograms
from replicarouter.clock import Clock
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import STALE_AFTER_INTERVALS, Reading, Replica
from replicarouter.fleet.verdict import proxy_limited
from replicarouter.telemetry.metrics import Metrics

PREFIX = "replicarouter_"
REPLICA_STAGES = (Stage.CONNECTING, Stage.SENT, Stage.STREAMING)


class Memory(Protocol):
    """How much a policy remembers: entries, their bytes, and how many it dropped because replicas cannot
    have them any more or for its own bound."""

    @property
    def entries(self) -> int: ...  # noqa: D102
    @property
    def bytes(self) -> int: ...  # noqa: D102
    @property
    def outlived(self) -> int: ...  # noqa: D102
    @property
    def cut(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Sources:
    """What the collector reads from."""

    fleet: Fleet
    ledger: Ledger
    metrics: Metrics
    clock: Clock
    lag: Callable[[], float]
    version: str
    connector_limit: int
    scrape_interval: float
    reloaded: Callable[[], bool] = lambda: True
    memories: Callable[[], Mapping[str, Memory]] = dict

    @property
    def fresh(self) -> float:
        """Seconds for which a reading counts."""
        return STALE_AFTER_INTERVALS * self.scrape_interval


class RouterCollector(Collector):
    """Yields every family of the router."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """All families, read now."""
        yield from self._requests()
        yield from self._connector()
        yield from self._engines()
        yield from self._times()
        yield from self._routing()
        yield from self._router()

    def _requests(self) -> Iterator[Metric]:
        ledger, fleet = self._sources.ledger, self._sources.fleet
        received = [((endpoint,), count) for endpoint, count in ledger.received().items()]
        yield _counter("requests_received", "Requests whose head was read.", ["endpoint"], received)
        yield _counter(
            "requests",
            "Requests that ended, by how they ended.",
            ["endpoint", "model", "replica", "outcome"],
            ledger.finished,
        )
        yield _gauge("requests_receiving", "Requests whose body is arriving.", [], [((), ledger.receiving)])
        queued = [((model,), float(ledger.queued.get(model, 0))) for model in fleet.pools]
        yield _gauge("requests_queued", "Requests waiting for a replica with room.", ["model"], queued)
        outstanding = [
            ((replica.name, stage.label), float(replica.count(stage)))
            for replica in fleet
            for stage in REPLICA_STAGES
        ]
        yield _gauge(
            "requests_outstanding",
            "Requests that have a replica, by stage.",
            ["replica", "stage"],
            outstanding,
        )
        yield _counter("attempts", "Attempts at replicas.", ["replica", "result"], ledger.attempts)
        yield _counter("retries", "Attempts after the first.", ["reason"], ledger.retries)
        yield _counter("shed", "Requests refused for lack of room.", ["reason"], self._sources.metrics.shed)
        yield _counter("client_gone", "Requests whose client left.", ["stage"], ledger.client_gone)

    def _connector(self) -> Iterator[Metric]:
        sources = self._sources
        yield _gauge(
            "connector_limit",
            "Most connections to replicas, 0 for no limit.",
            [],
            [((), float(sources.connector_limit))],
        )
        connections: list[tuple[tuple[str, ...], float]] = []
        for replica in sources.fleet:
            counts = sources.ledger.connections_of(replica.row)
            connections.append(((replica.name, "busy"), float(counts.busy)))
            connections.append(((replica.name, "idle"), float(max(0, counts.open - counts.busy))))
        yield _gauge(
            "connector_connections",
            "Connections to replicas.",
            ["replica", "state"],
            connections,
        )
        yield _gauge(
            "connector_waiting",
            "Requests waiting for a connector slot.",
            [],
            [((), float(sources.ledger.waiting_for_slot))],
        )
        limited = proxy_limited(sources.ledger, sources.fleet, sources.clock(), fresh=sources.fresh)
        yield _gauge(
            "proxy_limited",
            "1 while the router holds requests back although an engine has nothing waiting.",
            [],
            [((), float(limited))],
        )

    def _engines(self) -> Iterator[Metric]:
        sources = self._sources
        now = sources.clock()
        known = [(replica, reading) for replica in sources.fleet if (reading := replica.reading) is not None]
        fresh = [
            (replica, reading)
            for replica in sources.fleet
            if (reading := replica.fresh_reading(now, sources.fresh)) is not None
        ]
        for name, text, read in _ENGINE_GAUGES:
            yield _gauge(name, text, ["replica"], _rows(fresh, read))
        yield _gauge(
            "engine_scrape_age_seconds",
            "Age of the last engine reading.",
            ["replica"],
            [((replica.name,), now - reading.at) for replica, reading in known],
        )
        for name, text, read in _ENGINE_COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, text, labels=["replica"])
            for labels, value in _rows(known, read):
                counter.add_metric(labels, value)
            yield counter
        restarts = CounterMetricFamily(
            PREFIX + "engine_restarts", "Times an engine's counters started anew.", labels=["replica"]
        )
        for replica in sources.fleet:
            restarts.add_metric([replica.name], replica.restarts)
        yield restarts
        info = GaugeMetricFamily(
            PREFIX + "engine_info",
            "What runs behind a replica.",
            labels=["replica", "engine", "version", "model"],
        )
        for replica, reading in known:
            info.add_metric([replica.name, replica.engine, replica.engine_version, reading.engine.model], 1)
        yield info

    def _times(self) -> Iterator[Metric]:
        metrics = self._sources.metrics
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
            yield _histogram(f"{name}_seconds", text, labels, series)
        yield _counter("tokens", "Tokens, as engines count them.", ["model", "kind"], metrics.tokens)

    def _routing(self) -> Iterator[Metric]:
        metrics = self._sources.metrics
        for name, text, labels, counter in (
            ("affinity", "Affinity of requests.", ["policy", "result"], metrics.affinity),
            (
                "affinity_cached_characters",
                "Characters of prompts that the policy expected in the chosen replica's cache.",
                ["policy"],
                metrics.cached_characters,
            ),
            (
                "shadow",
                "Affinity as the shadow policy would have had it.",
                ["policy", "result"],
                metrics.shadow,
            ),
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
            yield _counter(name, text, labels, counter)
        memories = self._sources.memories().items()
        yield _gauge(
            "affinity_memory_entries",
            "Keys, or blocks of prompts, that the policy remembers.",
            ["model"],
            [((model,), float(memory.entries)) for model, memory in memories],
        )
        yield _gauge(
            "affinity_memory_bytes",
            "What they take.",
            ["model"],
            [((model,), float(memory.bytes)) for model, memory in memories],
        )
        yield _counter(
            "affinity_forgotten",
            "Of them, dropped: for a replica's capacity, or for the policy's own bound.",
            ["model", "reason"],
            [
                ((model, reason), float(count))
                for model, memory in memories
                for reason, count in (("capacity", memory.outlived), ("bound", memory.cut))
            ],
        )

    def _router(self) -> Iterator[Metric]:
        sources = self._sources
        states = [
            ((replica.name, state.value), float(replica.state is state))
            for replica in sources.fleet
            for state in State
        ]
        yield _gauge("replica_state", "1 for the state a replica is in.", ["replica", "state"], states)
        weights = [((replica.name,), replica.weight) for replica in sources.fleet]
        yield _gauge("replica_weight", "Configured weight.", ["replica"], weights)
        ejections = sources.ledger.ejections
        yield _counter("ejections", "Times a replica was set aside.", ["replica", "reason"], ejections)
        yield _gauge("build_info", "The router's version.", ["version"], [((sources.version,), 1.0)])
        loaded = [((), float(sources.reloaded()))]
        yield _gauge("config_reload_success", "1 while the last configuration load worked.", [], loaded)
        yield _gauge("event_loop_lag_seconds", "How late due work runs.", [], [((), sources.lag())])


Read = Callable[[Reading], float | None]
"""Takes one value from a reading; None when the engine does not say."""

_ENGINE_GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("engine_requests_running", "Requests the engine works on.", lambda reading: reading.engine.running),
    ("engine_requests_waiting", "Requests in the engine's queue.", lambda reading: reading.engine.waiting),
    ("engine_kv_usage_ratio", "Used share of the KV cache.", lambda reading: reading.engine.kv_usage),
    (
        "engine_spec_accept_length",
        "Tokens accepted per speculative step.",
        lambda reading: reading.engine.spec_accept_length,
    ),
    (
        "engine_series_missing",
        "Series this engine should have and lacks.",
        lambda reading: float(len(reading.engine.missing)),
    ),
    (
        "requests_unexplained",
        "Sent + streaming - running - waiting, at the time of the reading.",
        lambda reading: reading.unexplained,
    ),
)

_ENGINE_COUNTERS: tuple[tuple[str, str, Read], ...] = (
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


def _rows(readings: Iterable[tuple[Replica, Reading]], read: Read) -> list[tuple[tuple[str, ...], float]]:
    return [((replica.name,), value) for replica, reading in readings if (value := read(reading)) is not None]


def _gauge(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _counter(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _histogram(name: str, text: str, labels: Sequence[str], histograms: Histograms) -> HistogramMetricFamily:
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for values, histogram in histograms:
        limits = [*(str(bound) for bound in histogram.bounds), "+Inf"]
        buckets = list(zip(limits, accumulate(histogram.counts), strict=True))
        family.add_metric(values, buckets, histogram.total)
    return family
