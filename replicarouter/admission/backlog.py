"""Which caller has most requests waiting for its weight: the one to shed from when the queue is full."""

import heapq
import itertools

from replicarouter.admission.fairness import Account

SLACK = 64
"""Outdated entries that a heap may hold beside as many as it has valid ones."""


class Backlog:
    """How many requests each caller has waiting in one rank of priority.

    A heap finds the largest. An entry may say too much, since who waits for less is not moved at once:
    it is corrected when it comes to the top. Thus every step is logarithmic, over its average.
    """

    def __init__(self) -> None:
        self._counts: dict[Account, int] = {}
        self._listed: dict[Account, float] = {}
        self._heap: list[tuple[float, int, Account]] = []
        self._serial = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, account: Account) -> None:
        """One more of its requests waits."""
        self._counts[account] = self._counts.get(account, 0) + 1
        size = self.size(account)
        if size > self._listed.get(account, 0.0):
            self._list(account, size)

    def remove(self, account: Account) -> None:
        """One of its requests waits no more."""
        left = self._counts[account] - 1
        if left:
            self._counts[account] = left
        else:
            del self._counts[account], self._listed[account]

    def size(self, account: Account, more: int = 0) -> float:
        """How many of its requests wait for each unit of its weight, with `more` beside them."""
        return (self._counts.get(account, 0) + more) / account.weight

    def largest(self) -> Account:
        """The caller with the largest size; there must be one who waits."""
        while True:
            listed, _, account = self._heap[0]
            if self._listed.get(account) != -listed:
                heapq.heappop(self._heap)
            elif self.size(account) != -listed:
                heapq.heappop(self._heap)
                self._list(account, self.size(account))
            else:
                return account

    def _list(self, account: Account, size: float) -> None:
        self._listed[account] = size
        heapq.heappush(self._heap, (-size, next(self._serial), account))
        if len(self._heap) > 2 * len(self._listed) + SLACK:
            self._heap = [(-size, next(self._serial), one) for one, size in self._listed.items()]
            heapq.heapify(self._heap)
