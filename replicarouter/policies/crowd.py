"""The candidates of a view, compared and summed without a call for each of them: with a thousand, calls of
`Replica.cost` alone would take longer than a choice may."""

from collections.abc import Callable, Sequence
from operator import itemgetter, truediv
from typing import Any

from replicarouter.cells import Whole
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import View

SETTLE_EVERY = 1.0
"""Seconds between two looks at who is special no more: nobody is so for less, and a look costs as much
as a choice."""


def first_least(costs: Sequence[float], start: int) -> int:
    """Where the least of these costs stands: of equal ones the first from `start` on, then from the
    beginning, so that they take turns."""
    least = min(costs)
    try:
        return costs.index(least, start)
    except ValueError:
        return costs.index(least)


class Crowd:
    """One for each policy, which hands it view after view.

    It keeps what changes seldom: whether the replicas have one weight, as long as `view.replicas` is the
    same list, and how to read the counts of all candidates in one call, as long as they are the same.
    Replicas with failures, load of others or a slow start are few; those are asked one by one.
    """

    __slots__ = (
        "_candidates",
        "_cells",
        "_read",
        "_replicas",
        "_rows",
        "_settle_at",
        "_special",
        "_weight",
        "_weights",
        "_where",
        "counts",
    )

    def __init__(self) -> None:
        self.counts: Sequence[int] = ()
        """What each candidate had outstanding when their costs were asked for last."""
        self._replicas: Sequence[Replica] = ()
        self._cells: Whole | None = None
        self._special: set[int] = set()
        self._weight = 0.0
        self._weights: list[float] = []
        self._settle_at = 0.0
        self._candidates: Sequence[Replica] = ()
        self._rows: list[int] = []
        self._where: dict[int, int] = {}
        self._read: Callable[[Whole], Any] = list

    def costs(self, view: View) -> Sequence[float]:
        """A number for each candidate, in their order, that compares as `Replica.cost` does."""
        self._follow(view)
        candidates, now, cells, special = view.candidates, view.now, self._cells, self._special
        if cells is None:
            self.counts = [one.outstanding for one in candidates]
            return [one.cost(now) for one in candidates]
        self.counts = counts = self._counts(candidates, cells)
        weight = self._weight
        if weight and not special:
            return counts
        costs: list[float] = [*counts]
        if not weight:
            costs = list(map(truediv, map((1).__add__, counts), self._weights))
        for index in self._special_ones() if special else ():
            cost = candidates[index].cost(now)
            costs[index] = cost * weight - 1 if weight else cost
        return costs

    @property
    def common_weight(self) -> float:
        """By which costs were multiplied: the weight that all replicas have, 1 if they have several."""
        return self._weight or 1.0

    def shares(self, view: View) -> list[float]:
        """The share of each candidate, in their order."""
        self._follow(view)
        now, special = view.now, self._special
        if self._cells is None:
            return [one.share(now) for one in view.candidates]
        if not special:
            return [one.weight for one in view.candidates]
        return [one.share(now) if one.row in special else one.weight for one in view.candidates]

    def total(self, view: View) -> tuple[float, float]:
        """The load of all candidates together, and the sum of their shares."""
        self._follow(view)
        candidates, now, cells, special = view.candidates, view.now, self._cells, self._special
        if cells is None:
            return sum([one.load(now) for one in candidates]), sum([one.share(now) for one in candidates])
        weight = self._weight
        if not weight:
            loads = [
                one.load(now) if one.row in special else cells[one.row + OUTSTANDING] for one in candidates
            ]
            return sum(loads), sum(self.shares(view))
        counts = self._counts(candidates, cells)
        load: float = sum(counts)
        share = weight * len(candidates)
        if special:
            for index in self._special_ones():
                one = candidates[index]
                load += one.load(now) - counts[index]
                share += one.share(now) - weight
        return load, share

    def _follow(self, view: View) -> None:
        replicas = view.replicas
        if replicas is not self._replicas:
            self._replicas, self._candidates = replicas, ()
            first = replicas[0]
            self._special, self._weight = first.special, first.weight
            self._cells = first.cells if len({id(one.cells) for one in replicas}) == 1 else None
            if any(one.weight != first.weight for one in replicas):
                self._weight = 0.0
        if self._special and view.now >= self._settle_at:
            self._settle_at = view.now + SETTLE_EVERY
            special = self._special
            for one in [one for one in replicas if one.row in special]:
                one.settle(view.now)

    def _counts(self, candidates: Sequence[Replica], cells: Whole) -> Sequence[int]:
        """What each has outstanding."""
        if candidates != self._candidates:
            self._candidates = [*candidates]
            self._rows = rows = [one.row + OUTSTANDING for one in candidates]
            self._where = {}
            self._weights = [] if self._weight else [one.weight for one in candidates]
            # With a single name, itemgetter would give a number instead of a sequence.
            self._read = itemgetter(*rows) if len(rows) > 1 else lambda cells: (cells[rows[0]],)
        counts: Sequence[int] = self._read(cells)
        return counts

    def _special_ones(self) -> list[int]:
        """Where the special ones stand among the candidates whose counts were read last."""
        if not self._where:
            self._where = dict(zip(self._rows, range(len(self._rows)), strict=True))
        where = self._where
        found = [where.get(row + OUTSTANDING) for row in self._special]
        return [index for index in found if index is not None]
