"""Counts, counters and buckets in flat arrays with one owner each. Nothing here knows a metric's name.

Observing costs well under a microsecond, which is what a streamed chunk can afford; names and labels
are put on when somebody reads.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Counter:
    """A counter split by a tuple of label values; a row appears with its first count."""

    __slots__ = ("_free", "_rows", "_values")

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], int] = {}
        self._values = array("q")
        self._free: list[int] = []

    def add(self, labels: tuple[str, ...], amount: int = 1) -> None:
        """Count `amount` under these label values."""
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = self._new_row()
        self._values[row] += amount

    def touch(self, labels: tuple[str, ...]) -> None:
        """Make the row exist at zero, so that a rate can be taken from its first count."""
        self.add(labels, 0)

    def value(self, labels: tuple[str, ...]) -> int:
        """The count under these label values, 0 when there is none."""
        row = self._rows.get(labels)
        return 0 if row is None else self._values[row]

    def fold(self, position: int, value: str, into: str) -> None:
        """Count all that has `value` as its label at `position` under the label `into`: the sum over all
        rows stays the same."""
        for labels in [labels for labels in self._rows if labels[position] == value]:
            row = self._rows.pop(labels)
            amount, self._values[row] = self._values[row], 0
            self._free.append(row)
            self.add(_relabelled(labels, position, into), amount)

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._values.append(0)
        return len(self._values) - 1

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], int]]:
        for labels, row in self._rows.items():
            yield labels, self._values[row]


class Histogram:
    """Bucket counts of one series: `bounds` are inclusive upper limits in seconds, ascending."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = array("q", [0] * (len(self.bounds) + 1))
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)

    def merge(self, other: "Histogram") -> None:
        """Add all that `other`, of the same bounds, has observed."""
        self.total += other.total
        for bucket, count in enumerate(other.counts):
            self.counts[bucket] += count

    def quantile(self, share: float) -> float | None:
        """Estimate a quantile by linear interpolation inside its bucket; None without values.

        The open last bucket answers with its lower limit, so an estimate never exceeds the bounds.
        """
        left = share * self.count
        if not self.count:
            return None
        lower = 0.0
        for bound, inside in zip(self.bounds, self.counts, strict=False):
            if inside and left <= inside:
                return lower + (bound - lower) * left / inside
            left -= inside
            lower = bound
        return lower


class Histograms:
    """One histogram for each tuple of label values, all with the same bounds."""

    __slots__ = ("_bounds", "_series")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._series: dict[tuple[str, ...], Histogram] = {}

    def of(self, labels: tuple[str, ...]) -> Histogram:
        """The series of these label values, made at its first use."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Histogram(self._bounds)
        return series

    def merged(self) -> Histogram:
        """All series added up."""
        whole = Histogram(self._bounds)
        for series in self._series.values():
            whole.merge(series)
        return whole

    def fold(self, position: int, value: str, into: str) -> None:
        """Merge all series that have `value` as their label at `position` into those labelled `into`."""
        for labels in [labels for labels in self._series if labels[position] == value]:
            series = self._series.pop(labels)
            self.of(_relabelled(labels, position, into)).merge(series)

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Histogram]]:
        return iter(self._series.items())


def _relabelled(labels: tuple[str, ...], position: int, value: str) -> tuple[str, ...]:
    return (*labels[:position], value, *labels[position + 1 :])
