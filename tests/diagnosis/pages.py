"""Pages of a router's metrics, written from a small picture of a fleet and read with the real parser."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from replicarouter.diagnosis.judge import diagnose
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.verdict import Expectations, Verdict
from replicarouter.diagnosis.window import Window

STATES = ("loading", "ready", "unhealthy", "ejected", "draining")
STEP, GAP = 0.013, 0.0131
"""Seconds of an engine's step and between two tokens."""


@dataclass
class Replica:
    """One replica: the router's counts, its engine's, and the engine's counters."""

    name: str
    state: str = "ready"
    weight: float = 1.0
    limit: float = 0
    max_num_seqs: float | None = None
    connecting: float = 0
    sent: float = 0
    streaming: float = 16
    running: float | None = None
    waiting: float = 0
    kv: float = 0.3
    age: float | None = 0.4
    engine: str = "vllm"
    version: str = "0.32.0"
    model: str = "m"
    max_length: float | None = 32768
    cache_dtype: str = "auto"
    preemptions: float = 0
    queries: float = 5000
    hits: float = 0
    restarts: float = 0
    steps: float = 0
    gaps: float = 0
    gap: float = GAP
    silence: float = 0.01
    stalled: float = 0
    absent: tuple[str, ...] = ()
    accepted: float | None = None
    drafted: float | None = None
    fresh: bool = True

    @property
    def runs(self) -> float:
        return self.sent + self.streaming - self.waiting if self.running is None else self.running

    def lines(self) -> Iterator[tuple[str, float | None]]:
        at = f'replica="{self.name}"'
        for stage in ("connecting", "sent", "streaming"):
            yield f'requests_outstanding{{{at},stage="{stage}"}}', getattr(self, stage)
        for state in STATES:
            yield f'replica_state{{{at},state="{state}"}}', float(self.state == state)
        for name, value in (
            ("replica_weight", self.weight),
            ("replica_outstanding_limit", self.limit),
            ("replica_max_num_seqs", self.max_num_seqs),
            ("replica_stalled", self.stalled),
            ("replica_silence_seconds", self.silence),
            ("engine_scrape_age_seconds", self.age),
            ("engine_max_length_tokens", self.max_length),
            ("engine_preemptions_total", self.preemptions),
            ("engine_prefix_queries_total", self.queries),
            ("engine_prefix_hits_total", self.hits),
            ("engine_restarts_total", self.restarts),
            ("engine_steps_total", self.steps),
            ("engine_spec_accept_length", self.accepted),
            ("engine_spec_draft_length", self.drafted),
            ("itl_seconds_sum", self.gaps * self.gap),
            ("itl_seconds_count", self.gaps),
        ):
            yield f"{name}{{{at}}}", value
        info = f'{at},engine="{self.engine}",version="{self.version}",model="{self.model}"'
        yield f"engine_info{{{info}}}", 1
        yield f'engine_cache_dtype_info{{{at},kind="{self.cache_dtype}"}}', 1
        for kind in self.absent:
            yield f'engine_series_absent{{{at},kind="{kind}"}}', 1
        if self.fresh:
            unexplained = self.sent + self.streaming - self.runs - self.waiting
            for name, value in (
                ("engine_requests_running", self.runs),
                ("engine_requests_waiting", self.waiting),
                ("engine_kv_usage_ratio", self.kv),
                ("engine_series_missing", float(len(self.absent))),
                ("requests_unexplained", unexplained),
            ):
                yield f"{name}{{{at}}}", value


@dataclass
class Router:
    """A router and its fleet. `more` are further series, by their names and labels."""

    replicas: list[Replica]
    receiving: float = 0
    queued: float = 0
    connector_limit: float = 0
    connector_limit_per_replica: float = 0
    connector_waiting: float = 0
    busy: float | None = None
    held: float | None = 0
    policy: str = "least-outstanding"
    model: str = "m"
    received: float = 0
    started: float = 1000
    cpu: float = 0
    lag: float = 0.002
    open_fds: float = 300
    max_fds: float = 20000
    clients: float = 128
    reloaded: float = 1
    more: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, number: int) -> Replica:
        return self.replicas[number]

    def lines(self) -> Iterator[tuple[str, float | None]]:
        stages = sum(one.connecting + one.sent + one.streaming for one in self.replicas)
        in_flight = self.receiving + self.queued + stages
        endpoint = 'endpoint="/v1/chat/completions"'
        yield f"requests_received_total{{{endpoint}}}", self.received
        yield (
            f'requests_total{{{endpoint},model="{self.model}",replica="r0",outcome="ok"}}',
            self.received - in_flight,
        )
        yield "requests_receiving", self.receiving
        yield f'requests_queued{{model="{self.model}"}}', self.queued
        for one in self.replicas:
            yield from one.lines()
        busy = stages - self.connector_waiting if self.busy is None else self.busy
        for number, one in enumerate(self.replicas):
            at = f'replica="{one.name}"'
            yield f'connector_connections{{{at},state="busy"}}', 0 if number else busy
            yield f'connector_connections{{{at},state="idle"}}', 0
        yield from (
            ("connector_limit", self.connector_limit),
            ("connector_limit_per_replica", self.connector_limit_per_replica),
            ("connector_waiting", self.connector_waiting),
            ("held_seconds", self.held),
            ("queue_limit", 10000),
            ("queue_timeout_seconds", 60),
            ("client_connections", self.clients),
            ('ttft_seconds_sum{model="m"}', 0.2 * self.received),
            ('ttft_seconds_count{model="m"}', self.received),
            (f'policy_info{{model="{self.model}",policy="{self.policy}"}}', 1),
            ('build_info{version="1.2.3"}', 1),
            ("config_reload_success", self.reloaded),
            ("event_loop_lag_seconds", self.lag),
            ("process_cpu_seconds_total", self.cpu),
            ("process_open_fds", self.open_fds),
            ("process_max_fds", self.max_fds),
            ("process_start_time_seconds", self.started),
        )
        yield from self.more.items()

    def page(self) -> str:
        found: list[str] = []
        typed: set[str] = set()
        for series, value in self.lines():
            if value is None:
                continue
            name = series.partition("{")[0]
            family = name.removesuffix("_total") if name.endswith("_total") else name
            if name not in typed and not name.endswith(("_sum", "_count")):
                kind = "counter" if name.endswith("_total") else "gauge"
                found.append(f"# TYPE replicarouter_{family if kind == 'gauge' else name} {kind}")
                typed.add(name)
            found.append(f"replicarouter_{series} {float(value)}")
        return "\n".join(found) + "\n"


Change = Callable[[Router, float], None]
"""Makes of a healthy router what a test is about; given the seconds since the window began."""


def unchanged(router: Router, seconds: float) -> None:
    """Leave it healthy."""


def fleet(seconds: float, replicas: int = 8) -> Router:
    """A healthy, busy router as it is so many seconds after a window's beginning."""
    age = 60 + seconds
    ones = [
        Replica(f"r{number}", steps=age / STEP, gaps=16 * age / GAP, queries=5000 + 40 * age)
        for number in range(replicas)
    ]
    return Router(ones, received=500 + 40 * age, cpu=0.4 * age, busy=None)


def snapshot(text: str, at: float = 0.0) -> Snapshot:
    return Snapshot.of(text_string_to_metric_families(text), at)


def window(change: Change = unchanged, *, looks: int = 6, seconds: float = 5.0, replicas: int = 8) -> Window:
    """So many looks at a router that is changed at each of them."""
    snapshots = []
    for number in range(looks):
        at = seconds * number / max(1, looks - 1)
        router = fleet(at, replicas)
        change(router, at)
        snapshots.append(snapshot(router.page(), at))
    return Window(snapshots)


def judged(found: Window, *, concurrency: int | None = None, cold: bool = False) -> list[Verdict]:
    return diagnose(found, Expectations(concurrency=concurrency, cold=cold))


def codes(found: Window, *, concurrency: int | None = None, cold: bool = False) -> list[str]:
    return [verdict.code for verdict in judged(found, concurrency=concurrency, cold=cold)]


def only(found: Window, *, concurrency: int | None = None, cold: bool = False) -> Verdict:
    """The one verdict there is."""
    (verdict,) = judged(found, concurrency=concurrency, cold=cold)
    return verdict
