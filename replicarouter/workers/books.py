"""What all workers have counted, as if one process had: the keeper's ledger and metrics."""

from collections.abc import Iterator, Mapping

from replicarouter.cells import Counter, Histogram, Histograms, Labels
from replicarouter.commons.memory import Commons
from replicarouter.commons.place import Place
from replicarouter.fleet.common_ledger import KeeperLedger
from replicarouter.telemetry.metrics import Metrics

Series = Mapping[str, list[tuple[Labels, int]]]
"""By name: the labels and the first cell of each."""


class AllSeries:
    """The series of all workers, found by their name."""

    def __init__(self, commons: Commons) -> None:
        self._places = commons.seats
        self._seen: dict[int, tuple[object, Series]] = {}

    def of(self, name: str) -> Iterator[tuple[Place, Labels, int]]:
        """Where those of this name are: the worker's place, the labels and the first cell."""
        for place in self._places:
            for labels, offset in self._by_name(place).get(name, ()):
                yield place, labels, offset

    def _by_name(self, place: Place) -> Series:
        """Sorted anew when some series has come or gone, which is seldom."""
        listed = place.series()
        known = self._seen.get(place.index)
        if known is not None and known[0] is listed:
            return known[1]
        sorted_by_name: dict[str, list[tuple[Labels, int]]] = {}
        for (name, labels), (offset, _) in listed.items():
            sorted_by_name.setdefault(name, []).append((labels, offset))
        self._seen[place.index] = listed, sorted_by_name
        return sorted_by_name


class SumCounter(Counter):
    """What the keeper counts itself, and with it what the workers do."""

    __slots__ = ("_series",)

    def __init__(self, name: str, series: AllSeries) -> None:
        super().__init__(name)
        self._series = series

    def value(self, labels: Labels) -> int:
        """The count under these label values, 0 when there is none."""
        return dict(self).get(labels, 0)

    def __iter__(self) -> Iterator[tuple[Labels, int]]:
        sums = dict(super().__iter__())
        for place, labels, offset in self._series.of(self.name):
            sums[labels] = sums.get(labels, 0) + place.arena[offset]
        return iter(sums.items())


class SumHistograms(Histograms):
    """What the workers have observed."""

    __slots__ = ("_all",)

    def __init__(self, like: Histograms, series: AllSeries) -> None:
        super().__init__(like.bounds, like.name)
        self._all = series

    def merged(self) -> Histogram:
        """All series added up."""
        whole = Histogram(self.bounds)
        for _, series in self:
            whole.merge(series)
        return whole

    def __iter__(self) -> Iterator[tuple[Labels, Histogram]]:
        sums: dict[Labels, Histogram] = {}
        for place, labels, offset in self._all.of(self.name):
            end = offset + len(self.bounds) + 1
            series = Histogram(self.bounds, (place.arena[offset:end], place.times[end : end + 1]))
            if labels not in sums:
                sums[labels] = Histogram(self.bounds)
            sums[labels].merge(series)
        return iter(sums.items())


class AllLedger(KeeperLedger):
    """Where the requests of all workers are, and how they ended."""

    def __init__(self, commons: Commons, series: AllSeries) -> None:
        super().__init__(commons)
        self.arrived = SumCounter("arrived", series)
        self.finished = SumCounter("finished", series)
        self.attempts = SumCounter("attempts", series)
        self.retries = SumCounter("retries", series)
        self.client_gone = SumCounter("client_gone", series)
        self.ejections = SumCounter("ejections", series)
        self._series = series

    def lost_by(self, index: int, settled: Mapping[str, int]) -> dict[str, int]:
        """Requests, by endpoint, that a worker took along when it died: those that came to it, without those
        that have ended and those that were `settled` so before."""
        lost = {labels[0]: count for labels, count in self._of_worker("arrived", index)}
        for labels, count in self._of_worker("finished", index):
            lost[labels[0]] = lost.get(labels[0], 0) - count
        return {
            endpoint: count - settled.get(endpoint, 0)
            for endpoint, count in lost.items()
            if count > settled.get(endpoint, 0)
        }

    def _of_worker(self, name: str, index: int) -> Iterator[tuple[Labels, int]]:
        for place, labels, offset in self._series.of(name):
            if place.index == index:
                yield labels, place.arena[offset]


class AllMetrics(Metrics):
    """What was counted and timed about the exchanges of all workers."""

    def __init__(self, series: AllSeries) -> None:
        super().__init__()
        for name, kept in list(vars(self).items()):
            if isinstance(kept, Counter):
                setattr(self, name, SumCounter(kept.name, series))
            elif isinstance(kept, Histograms):
                setattr(self, name, SumHistograms(kept, series))
