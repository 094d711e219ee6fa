"""How fast things go: what has happened since the last look, from counters that only grow."""

from collections.abc import Callable
from typing import Any

from replicarouter.cells import Histograms
from replicarouter.clock import Clock
from replicarouter.exchange import CLIENT_GONE, OK
from replicarouter.telemetry.collector import Sources

Sums = dict[str, tuple[float, int]]
"""By replica: the sum of all values of a histogram, and how many there are."""

WHOLE = ""
"""The key of the sums over all replicas."""


class Pace:
    """Differences between two looks, which may be any time apart. Rates are per second, means are seconds,
    None without any value. `cpu` tells the CPU seconds that this process has used."""

    def __init__(self, sources: Sources, cpu: Callable[[], float]) -> None:
        self._sources = sources
        self._clock: Clock = sources.clock
        self._cpu = cpu
        self.forget()

    def forget(self) -> None:
        """Begin anew: the next look has nothing to compare with."""
        self._at = self._clock()
        self._used = self._cpu()
        self._ttft, self._itl = self._times()
        self._received = self._count_received()
        self._ended = self._count_ended()

    def look(self) -> dict[str, Any]:
        """Rates of requests, means of TTFT and ITL by replica and over all, and the share of a core used."""
        seconds = max(self._clock() - self._at, 1e-6)
        used, received, ended = self._used, self._received, self._ended
        ttft, itl = self._ttft, self._itl
        self.forget()
        return {
            "cpu": (self._used - used) / seconds,
            "received": max(0, self._received - received) / seconds,
            "ended": {
                kind: max(0, count - ended.get(kind, 0)) / seconds for kind, count in self._ended.items()
            },
            "ttft": _means(ttft, self._ttft),
            "itl": _means(itl, self._itl),
        }

    def _times(self) -> tuple[Sums, Sums]:
        metrics = self._sources.metrics
        return _sums(metrics.upstream_ttft), _sums(metrics.gaps)

    def _count_received(self) -> int:
        return sum(self._sources.ledger.received().values())

    def _count_ended(self) -> dict[str, int]:
        """Ended requests: well, by their client's leave, and otherwise."""
        counts = {"ok": 0, "client_gone": 0, "failed": 0}
        for labels, count in self._sources.ledger.finished:
            counts[labels[3] if labels[3] in {OK, CLIENT_GONE} else "failed"] += count
        return counts


def _sums(histograms: Histograms) -> Sums:
    sums = {labels[0]: (histogram.total, histogram.count) for labels, histogram in histograms}
    sums[WHOLE] = (sum(total for total, _ in sums.values()), sum(count for _, count in sums.values()))
    return sums


def _means(before: Sums, after: Sums) -> dict[str, float | None]:
    """The mean of what came between; a replica that was gone in between begins anew."""
    means: dict[str, float | None] = {}
    for name, (total, count) in after.items():
        old_total, old_count = before.get(name, (0.0, 0))
        new = count - old_count
        means[name] = (total - old_total) / new if new > 0 and total >= old_total else None
    return means
