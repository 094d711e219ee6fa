"""A worker's counters and histograms: cells that outlive it, and a list of what they count."""

import logging
from collections.abc import Callable

from replicarouter.commons.directory import Series
from replicarouter.commons.layout import ARENA, LEVELS, SERIES
from replicarouter.commons.lock import Lock
from replicarouter.commons.place import Place

log = logging.getLogger(__name__)

OnSeries = Callable[[str, tuple[str, ...], int, int], None]
OnDrop = Callable[[str, tuple[str, ...]], None]


def _nothing(*_: object) -> None:
    """Nobody wants to know."""


class Shelf:
    """Cells for the series of one worker; `known` are those that it has, or had before it was restarted.

    `on_series` is told of a new one (name, labels, offset, number of cells) before its first count, `on_drop`
    of one that is gone. The keeper needs neither: `Place.series` lists them.
    """

    def __init__(self, place: Place, lock: Lock) -> None:
        self.cells = place.arena
        self.floats = place.times
        self.on_series: OnSeries = _nothing
        self.on_drop: OnDrop = _nothing
        self._place = place
        self._lock = lock
        self._mark = place.index + 1
        series = place.series()
        self.known = {which: offset for which, (offset, _) in series.items()}
        self._sizes = dict(series.values())
        self._gaps = _gaps_between(sorted((offset, size) for offset, size in series.values()))
        self._told_full = False

    def take(self, name: str, labels: tuple[str, ...], size: int, *, level: bool = False) -> int | None:
        """The offset of `size` cells for a series: those it had, or fresh ones at zero. None when there
        is no room left: then count elsewhere. A `level` is at zero again when its worker has died."""
        offset = self.known.get((name, labels))
        if offset is not None and self._sizes[offset] == size:
            return offset
        offset = self._find(size, 0 if level else LEVELS, LEVELS if level else ARENA)
        if offset is not None and not self._note((name, labels), offset, size):
            self._gaps.append((offset, size))
            offset = None
        if offset is None:
            if not self._told_full:
                self._told_full = True
                log.warning("no room for further series", extra={"series": len(self.known)})
            return None
        self.known[name, labels] = offset
        self._sizes[offset] = size
        return offset

    def drop(self, name: str, labels: tuple[str, ...]) -> None:
        """A series is counted no more."""
        offset = self.known.pop((name, labels), None)
        if offset is None:
            return
        size = self._sizes.pop(offset)
        with self._lock.held(self._mark):
            self._place.gauges[SERIES] += 1
            self._place.directory.drop(offset)
            for cell in range(offset, offset + size):
                self.cells[cell] = 0
            self._place.gauges[SERIES] += 1
        self._gaps.append((offset, size))
        self.on_drop(name, labels)

    def _note(self, series: Series, offset: int, size: int) -> bool:
        name, labels = series
        with self._lock.held(self._mark):
            self._place.gauges[SERIES] += 1
            fits = self._place.directory.add(series, offset, size)
            self._place.gauges[SERIES] += 1
        if fits:
            self.on_series(name, labels, offset, size)
        return fits

    def _find(self, size: int, begin: int, end: int) -> int | None:
        """Take cells out of a gap; of one with just as many rather than of another."""
        fitting = [gap for gap in self._gaps if gap[1] >= size and begin <= gap[0] and gap[0] + size <= end]
        if not fitting:
            return None
        gap = next((one for one in fitting if one[1] == size), fitting[-1])
        self._gaps.remove(gap)
        offset, room = gap
        if room > size:
            self._gaps.append((offset + size, room - size))
        return offset


def _gaps_between(used: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies free: of the levels, and behind them."""
    gaps = []
    for begin, end in ((0, LEVELS), (LEVELS, ARENA)):
        at = begin
        for offset, size in used:
            if begin <= offset < end:
                if offset > at:
                    gaps.append((at, offset - at))
                at = offset + size
        if at < end:
            gaps.append((at, end - at))
    return gaps


class Reading:
    """The cells of another process's worker, for whoever reads them: nothing is taken here."""

    def __init__(self, place: Place) -> None:
        self.cells = place.arena
        self.floats = place.times
        self.known: dict[Series, int] = {}

    def take(self, name: str, labels: tuple[str, ...], size: int) -> int | None:  # noqa: ARG002 - as a shelf
        """There is no room."""
        return None

    def drop(self, name: str, labels: tuple[str, ...]) -> None:
        """Nothing is dropped."""
