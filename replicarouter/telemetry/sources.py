"""What the metrics and the reports are read from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.metrics_core import Metric

from replicarouter.clock import Clock
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import STALE_AFTER_INTERVALS
from replicarouter.fleet.work import Work
from replicarouter.settings import AdmissionSettings, ConnectorSettings
from replicarouter.telemetry.logs import dropped_lines
from replicarouter.telemetry.metrics import Metrics


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
    """What can be asked at any time. `admission` are the settings in force, `policy_of` names the policy of a
    model's pool, `clients` counts open connections of clients, `process` reads what the operating system says
    of this process, `wall` tells the Unix time, `traces_dropped` counts requests whose spans were lost and
    `lines_dropped` lines of the log. `works` is what the requests at each replica show of it. `workers` is
    how many processes serve the port, `restarts` how many of them had to be replaced."""

    fleet: Fleet
    ledger: Ledger
    metrics: Metrics
    works: Callable[[], Mapping[str, Work]]
    clock: Clock
    lag: Callable[[], float]
    version: str
    connector: ConnectorSettings
    scrape_interval: float
    admission: Callable[[], AdmissionSettings]
    policy_of: Callable[[str], str]
    clients: Callable[[], int]
    process: Callable[[], Iterable[Metric]]
    wall: Callable[[], float]
    reloaded: Callable[[], bool] = lambda: True
    memories: Callable[[], Mapping[str, Memory]] = dict
    traces_dropped: Callable[[], int] = lambda: 0
    lines_dropped: Callable[[], int] = dropped_lines
    workers: int = 1
    restarts: Callable[[], int] = lambda: 0

    @property
    def fresh(self) -> float:
        """Seconds for which a reading counts."""
        return STALE_AFTER_INTERVALS * self.scrape_interval
