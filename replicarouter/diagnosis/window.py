"""Several readings of one router: how its gauges went, and by how much its counters grew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from replicarouter.diagnosis.course import Course
from replicarouter.diagnosis.snapshot import Snapshot

ENGINE = "engine_"
"""Counters of this name are the engines' own: they do not begin with the router."""

RESTARTED = 1.0
"""Seconds by which a process must have started later to be another one."""


@dataclass(frozen=True, slots=True)
class Mean:
    """What a histogram observed within a window; `seconds` is the mean."""

    seconds: float
    count: float


class Window:
    """One or more snapshots, in the order of time.

    A counter that is smaller than before began anew, and counts from 0 again. With a single snapshot
    nothing has grown.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        if not snapshots:
            raise ValueError("a window has at least one snapshot")
        self.snapshots = tuple(snapshots)
        self._pairs = [(before, after, _restarted(before, after)) for before, after in pairwise(snapshots)]

    def __repr__(self) -> str:
        return f"<Window of {len(self.snapshots)} snapshots, {self.seconds:g} s>"

    @property
    def first(self) -> Snapshot:
        """The oldest snapshot."""
        return self.snapshots[0]

    @property
    def last(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    @property
    def seconds(self) -> float:
        """Between the first and the last; 0 where that is not known."""
        return self.last.at - self.first.at

    @property
    def rates(self) -> bool:
        """Whether there are two snapshots, so that counters tell something."""
        return len(self.snapshots) > 1

    @property
    def restarted(self) -> bool:
        """Whether the router began anew within the window."""
        return any(restarted for _, _, restarted in self._pairs)

    # Gauges

    def course(self, name: str, **labels: str) -> Course:
        """The sums of the samples with these labels, 0 without any."""
        return self.over(lambda snapshot: snapshot.total(name, **labels))

    def over(self, number: Callable[[Snapshot], float]) -> Course:
        """A number of every snapshot."""
        return Course([number(snapshot) for snapshot in self.snapshots])

    def courses(self, label: str, name: str, **labels: str) -> dict[str, Course]:
        """The sums by the values of one label; where a snapshot has no sample, it is passed over."""
        values: dict[str, list[float]] = {}
        for snapshot in self.snapshots:
            for key, value in snapshot.by(label, name, **labels).items():
                values.setdefault(key, []).append(value)
        return {key: Course(found) for key, found in values.items()}

    # Counters

    def growth(self, name: str, **labels: str) -> float:
        """By how much the samples with these labels grew, in all."""
        return sum(self.growths("", name, **labels).values())

    def growths(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """By how much they grew, by the values of one label."""
        sums: dict[str, float] = {}
        for before, after, restarted in self._pairs:
            old = _by_labels(before, name, labels)
            for key, value in _by_labels(after, name, labels).items():
                of = dict(key).get(label, "")
                sums[of] = sums.get(of, 0.0) + _grown(name, old.get(key), value, restarted=restarted)
        return sums

    def means(self, label: str, name: str, **labels: str) -> dict[str, Mean]:
        """What a histogram observed within the window, by the values of one label."""
        sums = self.growths(label, f"{name}_sum", **labels)
        counts = self.growths(label, f"{name}_count", **labels)
        return {key: Mean(sums.get(key, 0.0) / count, count) for key, count in counts.items() if count > 0}

    def mean(self, name: str, **labels: str) -> Mean | None:
        """The same over all labels; None when it observed nothing."""
        return self.means("", name, **labels).get("")


_Key = frozenset[tuple[str, str]]


def _by_labels(snapshot: Snapshot, name: str, labels: dict[str, str]) -> dict[_Key, float]:
    return {frozenset(row.items()): value for row, value in snapshot.rows(name, **labels)}


def _grown(name: str, before: float | None, after: float, *, restarted: bool) -> float:
    if name.startswith(ENGINE):
        # An engine that is seen for the first time has counted before.
        if before is None:
            return 0.0
    elif before is None or restarted:
        return after
    return after - before if after >= before else after


def _restarted(before: Snapshot, after: Snapshot) -> bool:
    old, new = (snapshot.value("process_start_time_seconds") for snapshot in (before, after))
    if old is not None and new is not None:
        return new > old + RESTARTED
    return after.total("requests_received_total") < before.total("requests_received_total")
