"""Two replicas under a clock that stands still, all that is read from them, and a metrics page."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.fleet.registry import Fleet
from replicarouter.policies.base import Remembered
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.metrics import Metrics
from tests.scene import HandClock, a_fleet

INTERVAL = 1.0


@dataclass(slots=True, eq=False)
class Watched:
    """A fleet with what the collector and the reports read."""

    fleet: Fleet
    clock: HandClock = field(default_factory=HandClock)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def sources(self) -> Sources:
        return Sources(
            fleet=self.fleet,
            ledger=self.fleet.ledger,
            metrics=self.metrics,
            clock=self.clock,
            lag=lambda: 0.25,
            version="9.9",
            connector_limit=2048,
            scrape_interval=INTERVAL,
            memories=lambda: {"m1": Remembered(10, 2000, 3, 4)},
        )

    def page(self) -> str:
        registry = CollectorRegistry()
        registry.register(RouterCollector(self.sources))
        return generate_latest(registry).decode()

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
def watch() -> Callable[..., Watched]:
    """Make it over a fleet, by default two ready replicas of one model."""
    return lambda fleet=None: Watched(fleet or a_fleet("a", "b"))


@pytest.fixture
def watched(watch: Callable[..., Watched]) -> Watched:
    return watch()
