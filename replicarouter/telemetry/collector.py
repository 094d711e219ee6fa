"""Everything as Prometheus metrics, read when somebody asks. Names and labels are the contract's."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from replicarouter.telemetry.families import FAMILIES
from replicarouter.telemetry.family import Family
from replicarouter.telemetry.sources import Sources


class RouterCollector(Collector):
    """Reads every family of the router. A reading takes no turn of the event loop: it is of one moment."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def families(self) -> Iterator[Family]:
        """All families, read now."""
        for read in FAMILIES:
            yield from read(self._sources)

    def collect(self) -> Iterator[Metric]:
        """The same, as the client library has them."""
        for family in self.families():
            yield family.metric()


__all__ = ["RouterCollector", "Sources"]
