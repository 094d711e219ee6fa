"""Keeps the counters of replicas that have left, without letting them grow for ever."""

from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.telemetry.metrics import Metrics

MOST_NAMES = 256
"""Replicas that have left whose counters stay under their own names: longer than anybody looks back,
where replicas come and go a few times an hour."""

REMOVED = "removed"
"""The label `replica` of all others that have left."""


class Departed(FleetListener):
    """Folds the oldest names together. Sums over all replicas never fall."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._counters = (
            (ledger.finished, 2),
            (ledger.attempts, 0),
            (ledger.ejections, 0),
            (metrics.answers, 0),
            (metrics.routed_characters, 1),
        )
        self._histograms = (metrics.connect, metrics.upstream_ttft, metrics.gaps)
        self._names: dict[str, None] = {}

    def added(self, replica: Replica) -> None:
        """Its name is in use again."""
        self._names.pop(replica.name, None)

    def removed(self, replica: Replica) -> None:
        """Keep its name, and fold the one that left first if there are too many."""
        self._names[replica.name] = None
        if len(self._names) <= MOST_NAMES:
            return
        oldest = next(iter(self._names))
        del self._names[oldest]
        for counter, position in self._counters:
            counter.fold(position, oldest, REMOVED)
        for histograms in self._histograms:
            histograms.fold(0, oldest, REMOVED)
