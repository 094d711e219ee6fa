"""Counts, counters and buckets in flat arrays with one owner each. Nothing here knows a metric's name.

Observing costs well under a microsecond, which is what a streamed chunk can afford; names and labels
are put on when somebody reads.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

Labels = tuple[str, ...]

Whole: TypeAlias = "list[int] | memoryview[int]"
Real: TypeAlias = "list[float] | memoryview[float]"
"""Lists, not arrays: adding to an element of an array takes twice as long, for it makes and reads a
number each time."""


class Shelf(Protocol):
    """Cells for counters and histograms that outlive their process. `cells` and `floats` are the same ones.

    `known` are the series that are there already, by name and labels, with the offset of their first cell.
    """

    @property
    def cells(self) -> "memoryview[int]":
        """The cells, read as integers."""

    @property
    def floats(self) -> "memoryview[float]":
        """The cells, read as floats."""

    @property
    def known(self) -> Mapping[tuple[str, Labels], int]:
        """The series that are there."""

    def take(self, name: str, labels: Labels, size: int) -> int | None:
        """The offset of a series of so many cells; None when there is no room for it."""

    def drop(self, name: str, labels: Labels) -> None:
        """A series is counted no more."""


class Counter:
    """A counter split by a tuple of label values; a row appears with its first count.

    Its cells are its own, or those that it has on a `shelf` under its `name`.
    """

    __slots__ = ("_free", "_rows", "_shelf", "_spare", "_values", "name", "on_fold")

    def __init__(self, name: str = "", shelf: Shelf | None = None) -> None:
        self.name = name
        self.on_fold: Callable[[], None] | None = None
        """Is told when rows are folded: what `cell` has said of them holds no more."""
        self._rows: dict[Labels, int] = {}
        self._shelf = shelf
        self._values: Whole = [] if shelf is None else shelf.cells
        self._spare: Counter | None = None  # What the shelf has no room for.
        self._free: list[int] = []
        if shelf is not None:
            self._rows.update({labels: at for (whose, labels), at in shelf.known.items() if whose == name})

    def add(self, labels: Labels, amount: int = 1) -> None:
        """Count `amount` under these label values."""
        try:
            self._values[self._rows[labels]] += amount
        except KeyError:
            self._add_first(labels, amount)

    def touch(self, labels: Labels) -> None:
        """Make the row exist at zero, so that a rate can be taken from its first count."""
        self.add(labels, 0)

    def cell(self, labels: Labels) -> tuple[Whole, int] | None:
        """Where this row is, for those who often add to it; None when it has no cell of its own, be it for
        lack of room. Good until `on_fold`."""
        row = self._rows.get(labels)
        return None if row is None else (self._values, row)

    def learn(self, labels: Labels, offset: int) -> None:
        """Read this row from a cell that somebody else writes."""
        self._rows[labels] = offset

    def forget(self, labels: Labels) -> None:
        """The row of somebody else is gone."""
        self._rows.pop(labels, None)

    def value(self, labels: Labels) -> int:
        """The count under these label values, 0 when there is none."""
        row = self._rows.get(labels)
        if row is None:
            return 0 if self._spare is None else self._spare.value(labels)
        return self._values[row]

    def fold(self, position: int, value: str, into: str) -> None:
        """Count all that has `value` as its label at `position` under the label `into`: the sum over all
        rows stays the same."""
        for labels in [labels for labels in self._rows if labels[position] == value]:
            row = self._rows.pop(labels)
            amount = self._values[row]
            if self._shelf is None:
                self._values[row] = 0
                self._free.append(row)
            else:
                self._shelf.drop(self.name, labels)
            self.add(_relabelled(labels, position, into), amount)
        if self.on_fold is not None:
            self.on_fold()
        if self._spare is not None:
            self._spare.fold(position, value, into)

    def _add_first(self, labels: Labels, amount: int) -> None:
        row = self._new_row(labels)
        if row is None:
            self._spared().add(labels, amount)
            return
        self._rows[labels] = row
        self._values[row] += amount

    def _new_row(self, labels: Labels) -> int | None:
        if self._shelf is not None:
            return self._shelf.take(self.name, labels, 1)
        if self._free:
            return self._free.pop()
        own = self._values
        assert isinstance(own, list)
        own.append(0)
        return len(own) - 1

    def _spared(self) -> "Counter":
        if self._spare is None:
            self._spare = Counter()
        return self._spare

    def __iter__(self) -> Iterator[tuple[Labels, int]]:
        for labels, row in self._rows.items():
            yield labels, self._values[row]
        if self._spare is not None:
            yield from self._spare


class Histogram:
    """Bucket counts of one series: `bounds` are inclusive upper limits in seconds, ascending. `sums` has one
    cell, the sum of all values."""

    __slots__ = ("bounds", "counts", "sums")

    def __init__(self, bounds: Sequence[float], cells: tuple[Whole, Real] | None = None) -> None:
        self.bounds = tuple(bounds)
        self.counts: Whole
        self.sums: Real
        self.counts, self.sums = cells or ([0] * (len(self.bounds) + 1), [0.0])

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self.sums[0]

    @total.setter
    def total(self, value: float) -> None:
        self.sums[0] = value

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sums[0] += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)

    def merge(self, other: "Histogram") -> None:
        """Add all that `other`, of the same bounds, has observed."""
        self.sums[0] += other.total
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
    """One histogram for each tuple of label values, all with the same bounds.

    Their cells are their own, or those that they have on a `shelf` under their `name`.
    """

    __slots__ = ("_series", "_shelf", "bounds", "name", "on_fold")

    def __init__(self, bounds: Sequence[float], name: str = "", shelf: Shelf | None = None) -> None:
        self.name = name
        self.bounds = tuple(bounds)
        self.on_fold: Callable[[], None] | None = None
        """Is told when series are merged: those that `of` has given may count no more."""
        self._series: dict[Labels, Histogram] = {}
        self._shelf = shelf
        if shelf is not None:
            for whose, labels in shelf.known:
                if whose == name:
                    self._series[labels] = self._shelved(labels, shelf)

    def of(self, labels: Labels) -> Histogram:
        """The series of these label values, made at its first use."""
        series = self._series.get(labels)
        if series is None:
            shelf = self._shelf
            series = Histogram(self.bounds) if shelf is None else self._shelved(labels, shelf)
            self._series[labels] = series
        return series

    def observe(self, labels: Labels, value: float) -> None:
        """Count one value in the series of these label values."""
        series = self._series.get(labels) or self.of(labels)
        series.counts[bisect_left(series.bounds, value)] += 1
        series.sums[0] += value

    def learn(self, labels: Labels, offset: int) -> None:
        """Read this series from cells that somebody else writes."""
        assert self._shelf is not None
        self._series[labels] = self._at(offset, self._shelf)

    def forget(self, labels: Labels) -> None:
        """The series of somebody else is gone."""
        self._series.pop(labels, None)

    def merged(self) -> Histogram:
        """All series added up."""
        whole = Histogram(self.bounds)
        for series in self._series.values():
            whole.merge(series)
        return whole

    def fold(self, position: int, value: str, into: str) -> None:
        """Merge all series that have `value` as their label at `position` into those labelled `into`."""
        for labels in [labels for labels in self._series if labels[position] == value]:
            series = Histogram(self.bounds)
            series.merge(self._series.pop(labels))
            if self._shelf is not None:
                self._shelf.drop(self.name, labels)
            self.of(_relabelled(labels, position, into)).merge(series)
        if self.on_fold is not None:
            self.on_fold()

    def _shelved(self, labels: Labels, shelf: Shelf) -> Histogram:
        offset = shelf.take(self.name, labels, len(self.bounds) + 2)
        return Histogram(self.bounds) if offset is None else self._at(offset, shelf)

    def _at(self, offset: int, shelf: Shelf) -> Histogram:
        end = offset + len(self.bounds) + 1
        return Histogram(self.bounds, (shelf.cells[offset:end], shelf.floats[end : end + 1]))

    def __iter__(self) -> Iterator[tuple[Labels, Histogram]]:
        return iter(self._series.items())


def _relabelled(labels: Labels, position: int, value: str) -> Labels:
    return (*labels[:position], value, *labels[position + 1 :])
