"""Numbers that are kept by slot, in the order of a list of candidates."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from replicarouter.fleet.replica import Replica

LOOKUPS = 8
"""Replicas that are looked for one by one in a new list of candidates: the next list may be another one,
and to look for a few is cheaper than to note where all of them are."""


class CandidateSlots:
    """Which slot each replica has, and where each slot stands among the candidates of the moment. `open`
    gives a slot to a replica that has none."""

    __slots__ = ("_candidates", "_lookups", "_of", "_open", "_places", "_read", "_slots")

    def __init__(self, open_slot: Callable[[Replica], int]) -> None:
        self._open = open_slot
        self._of: dict[Replica, int] = {}
        self._candidates: Sequence[Replica] = ()
        self._slots: list[int] = []
        self._places: dict[int, int] = {}
        self._lookups = 0
        self._read: Callable[[list[float]], Any] = tuple

    def close(self, replica: Replica) -> None:
        """The replica has its slot no more."""
        self._of.pop(replica, None)
        self._candidates = ()

    def follow(self, candidates: Sequence[Replica]) -> None:
        """These are the candidates now."""
        if candidates == self._candidates:
            return
        known = self._of
        for replica in candidates if None in map(known.get, candidates) else ():
            if replica not in known:
                known[replica] = self._open(replica)
        slots = self._slots = [known[replica] for replica in candidates]
        self._places = {}
        self._lookups = 0
        # With a single name, itemgetter would give a number instead of a sequence.
        one = slice(slots[0], slots[0] + 1)
        self._read = itemgetter(*slots) if len(slots) > 1 else itemgetter(one)
        self._candidates = [*candidates]

    def read(self, numbers: list[float]) -> Sequence[float]:
        """Of numbers by slot, those of the candidates in their order."""
        found: Sequence[float] = self._read(numbers)
        return found

    def place(self, slot: int) -> int | None:
        """Where this slot stands among the candidates; None: it is no candidate's."""
        if self._lookups < LOOKUPS:
            self._lookups += 1
            return self._slots.index(slot) if slot in self._slots else None
        if not self._places:
            self._places = {one: place for place, one in enumerate(self._slots)}
        return self._places.get(slot)
