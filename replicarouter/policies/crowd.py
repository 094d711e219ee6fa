"""The candidates of a view, compared and summed without a call for each of them: with a thousand, calls of
`Replica.cost` alone would take longer than a choice may."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from math import inf
from operator import add, itemgetter, truediv
from typing import Any

from replicarouter.cells import Whole
from replicarouter.fleet.ledger import OUTSTANDING, Special
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Figures, View, loads

SETTLE_EVERY = 1.0
"""Seconds between two looks at who is special no more: nobody is so for less, and a look at all replicas
costs as much as a choice."""


def first_least(costs: Sequence[float], start: int) -> int:
    """Where the least of these costs stands: of equal ones the first from `start` on, then from the
    beginning, so that they take turns."""
    least = min(costs)
    try:
        return costs.index(least, start)
    except ValueError:
        return costs.index(least)


class Counted(Mapping[str, Mapping[str, float]]):
    """The figures of replicas that cost what they have outstanding, by their weight. Written when somebody
    reads them: a request does not have to wait for that."""

    __slots__ = ("_counts", "_replicas", "_weight", "_written")

    def __init__(self, replicas: Sequence[Replica], counts: Sequence[int], weight: float) -> None:
        self._replicas = [*replicas]
        self._counts = counts
        self._weight = weight
        self._written: dict[str, dict[str, float]] = {}

    def __getitem__(self, name: str) -> Mapping[str, float]:
        """The figures of one; raises `KeyError`."""
        if not self._written:
            for replica, count in zip(self._replicas, self._counts, strict=True):
                self._written[replica.name] = {"load": count, "cost": (count + 1) / self._weight}
        return self._written[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return (replica.name for replica in self._replicas)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._replicas)


class Crowd:
    """One for each policy, which hands it view after view.

    It keeps what changes seldom: the weights of the replicas, as long as `view.replicas` is the same list;
    how to read the counts of all candidates in one call, as long as they are the same; and what failures and
    load of others add to these, until the next of them comes or expires. Replicas that start slowly are
    few, and change all the time; those are asked one by one.
    """

    __slots__ = (
        "_candidates",
        "_cells",
        "_extra",
        "_extras",
        "_read",
        "_replicas",
        "_settle_at",
        "_slow",
        "_special",
        "_until",
        "_version",
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
        self._special = Special()
        self._weight = 0.0
        self._weights: list[float] = []
        self._settle_at = 0.0
        self._candidates: Sequence[Replica] = ()
        self._where: dict[int, int] = {}
        self._read: Callable[[Whole], Any] = list
        # What counts beside the requests, in the order of the candidates (empty: nothing does), and all of
        # it together; it holds `_until` then, unless another version of the special ones comes before.
        self._extras: Sequence[float] = ()
        self._extra = 0.0
        self._slow: Sequence[int] = ()
        self._version = -1
        self._until = inf

    def costs(self, view: View) -> Sequence[float]:
        """A number for each candidate, in their order, that compares as `Replica.cost` does."""
        # Every request asks this; what `_look` does is asked for here, so that most go without its call.
        if (
            view.candidates != self._candidates
            or view.replicas is not self._replicas
            or self._special.version != self._version
            or view.now >= self._until
        ):
            self._look(view)
        cells = self._cells
        if cells is None:
            self.counts = [one.outstanding for one in view.candidates]
            return [one.cost(view.now) for one in view.candidates]
        counts: Sequence[int] = self._read(cells)
        self.counts = counts
        if self._weight:
            if not self._extras:
                return counts
            costs = [*map(add, counts, self._extras)]
        else:
            loads = map(add, counts, self._extras) if self._extras else counts
            costs = [*map(truediv, map(add, loads, repeat(1)), self._weights)]
        for place in self._slow:
            cost, weight = view.candidates[place].cost(view.now), self._weight
            costs[place] = cost * weight - 1 if weight else cost
        return costs

    def figures(self, view: View) -> Figures:
        """The same as `loads`."""
        self._follow(view)
        if self._cells is None or self._extras or self._slow or not self._weight:
            return loads(view)
        return Counted(view.candidates, self._read(self._cells), self._weight)

    @property
    def common_weight(self) -> float:
        """By which costs were multiplied: the weight that all replicas have, 1 if they have several."""
        return self._weight or 1.0

    def shares(self, view: View) -> Sequence[float]:
        """The share of each candidate, in their order."""
        self._follow(view)
        if self._cells is None:
            return [one.share(view.now) for one in view.candidates]
        if not self._slow:
            return self._weights
        shares = [*self._weights]
        for place in self._slow:
            shares[place] = view.candidates[place].share(view.now)
        return shares

    def total(self, view: View) -> tuple[float, float]:
        """The load of all candidates together, and the sum of their shares."""
        self._follow(view)
        candidates, now, cells = view.candidates, view.now, self._cells
        if cells is None:
            return sum([one.load(now) for one in candidates]), sum([one.share(now) for one in candidates])
        load: float = sum(self._read(cells)) + self._extra
        if self._weight and not self._slow:
            return load, self._weight * len(candidates)
        return load, sum(self.shares(view))

    def _follow(self, view: View) -> None:
        """Know what is kept of these candidates, at this moment."""
        if (
            view.candidates != self._candidates
            or view.replicas is not self._replicas
            or self._special.version != self._version
            or view.now >= self._until
        ):
            self._look(view)

    def _look(self, view: View) -> None:
        """Something is not as it was."""
        candidates, replicas = view.candidates, view.replicas
        if replicas is not self._replicas:
            self._replicas, self._candidates = replicas, ()
            first = replicas[0]
            self._special, self._weight = first.special, first.weight
            self._cells = first.cells if len({id(one.cells) for one in replicas}) == 1 else None
            if any(one.weight != first.weight for one in replicas):
                self._weight = 0.0
        if candidates != self._candidates:
            self._candidates = [*candidates]
            rows = [one.row + OUTSTANDING for one in candidates]
            self._where = {}
            self._weights = [one.weight for one in candidates]
            # With a single name, itemgetter would give a number instead of a sequence.
            self._read = itemgetter(*rows) if len(rows) > 1 else lambda cells: (cells[rows[0]],)
        self._weigh(view)

    def _weigh(self, view: View) -> None:
        """What the special ones among the candidates count beside their requests, and for how long."""
        now, special = view.now, self._special
        self._extras, self._extra, self._slow, self._until = (), 0.0, (), inf
        if special:
            if now >= self._settle_at:
                self._settle_at = now + SETTLE_EVERY
                for one in [one for one in self._replicas if one.row in special]:
                    one.settle(now)
            self._until = self._settle_at
            places = self._special_places()
            if places:
                self._extras = extras = [0.0] * len(self._candidates)
                for place in places:
                    extras[place], until = self._candidates[place].burden(now)
                    self._until = min(self._until, until)
                self._extra = sum(extras)
                self._slow = [place for place in places if self._candidates[place].starts_slowly(now)]
        self._version = special.version

    def _special_places(self) -> list[int]:
        """Where the special ones stand among the candidates."""
        if not self._where:
            self._where = {one.row: place for place, one in enumerate(self._candidates)}
        found = map(self._where.get, self._special)
        return [place for place in found if place is not None]
