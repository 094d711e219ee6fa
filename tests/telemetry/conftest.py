"""Two replicas under a clock that stands still, all that is read from them, and a metrics page."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import OwnFloor
from replicarouter.policies.base import Remembered
from replicarouter.settings import AdmissionSettings, ConnectorSettings
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.metrics import Metrics
from tests.scene import HandClock, a_fleet, an_exchange, replica_settings

INTERVAL = 1.0


@dataclass(slots=True, eq=False)
class Watched:
    """A fleet with what the collector and the reports read."""

    fleet: Fleet
    clock: HandClock = field(default_factory=HandClock)
    metrics: Metrics = field(default_factory=Metrics)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    process: Callable[[], Iterable[Metric]] = ProcessCollector("replicarouter", registry=None).collect

    @property
    def sources(self) -> Sources:
        return Sources(
            fleet=self.fleet,
            ledger=self.fleet.ledger,
            metrics=self.metrics,
            works=OwnFloor(self.fleet, 0.0).works,
            clock=self.clock,
            lag=lambda: 0.25,
            version="9.9",
            connector=ConnectorSettings(limit=2048, limit_per_replica=300),
            scrape_interval=INTERVAL,
            admission=lambda: self.admission,
            policy_of=lambda model: f"policy of {model}",
            clients=lambda: 7,
            process=self.process,
            wall=lambda: 1_700_000_000.25,
            memories=lambda: {"m1": Remembered(10, 2000, 3, 4)},
        )

    @property
    def collector(self) -> RouterCollector:
        return RouterCollector(self.sources)

    def page(self) -> str:
        return generate_latest(self.collector).decode()

    def families(self) -> dict[str, Metric]:
        """By name, without the prefix."""
        return {
            family.name.removeprefix("replicarouter_"): family
            for family in text_string_to_metric_families(self.page())
        }

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of one metric by its label values, in the order of the labels' names."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.families().values()
            for sample in family.samples
            if sample.name == f"replicarouter_{name}"
        }


@pytest.fixture
def restored() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def watch() -> Callable[..., Watched]:
    """Make it over a fleet, by default two ready replicas of one model."""
    return lambda fleet=None: Watched(fleet or a_fleet("a", "b"))


@pytest.fixture
def watched(watch: Callable[..., Watched]) -> Watched:
    return watch()


@pytest.fixture
def full(watch: Callable[..., Watched]) -> Watched:
    """Something is counted under every name."""
    settings = [replica_settings(name, max_num_seqs=16) for name in "ab"]
    watched = watch(a_fleet(*settings, models=()))
    for replica in watched.fleet:
        watched.fleet.list_models(replica, [{"id": "m1", "max_model_len": 4096}])
        replica.engine = "vllm"
        replica.engine_version = "1.0"
        replica.take(
            EngineReading(
                running=1,
                waiting=2,
                kv_usage=0.5,
                preemptions=3,
                prefix_queries=100,
                prefix_hits=40,
                spec_accept_length=2.5,
                spec_draft_length=3,
                steps=50,
                model="m",
                cache_dtype="fp8",
                missing=("vllm:num_preemptions_total",),
            ),
            watched.clock(),
        )
    ledger = watched.fleet.ledger
    ledger.arrived.add(("/v1/chat/completions",))
    ledger.finished.add(("/v1/chat/completions", "m1", "a", "ok"))
    ledger.attempts.add(("a", "ok"))
    ledger.ejections.add(("a", "http_500"))
    ledger.retries.add(("connect_failed",))
    ledger.client_gone.add(("streaming",))
    metrics = watched.metrics
    metrics.shed.add(("queue_full",))
    metrics.cached_characters.add(("random",), 10)
    metrics.shadow.add(("random", "hit"))
    metrics.shadow_choices.add(("random", "same"))
    metrics.shadow_cached_characters.add(("random",), 10)
    metrics.routed_characters.add(("random", "a"), 100)
    watched.metrics.gaps.of(("a",)).observe(0.02)
    exchange = an_exchange(
        model="m1",
        replica="a",
        outcome="ok",
        reasoned=True,
        prompt_tokens=5,
        cached_tokens=1,
        completion_tokens=7,
        received_at=1000.1,
        leased_at=1000.2,
        sent_at=1000.3,
        first_content_at=1000.5,
        first_answer_at=1000.6,
        ended_at=1001.0,
    )
    for take in (watched.metrics.first_content, watched.metrics.first_answer, watched.metrics.observe):
        take(exchange)
    return watched
