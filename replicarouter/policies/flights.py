"""Requests at their replicas, and what of their prompts has yet to be computed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from replicarouter.fleet.replica import Replica
from replicarouter.policies.backlog import Backlog

TYPICAL_GAIN = 0.05
"""How far a request moves what is typical."""

UNKNOWN_CAPACITY = 500_000
"""Tokens in the KV cache of an engine that does not say."""


@dataclass(slots=True, eq=False)
class Member:
    """A replica in its slot. `trust` is the share of its KV capacity, `capacity` in tokens, in which prompts
    were found again; `restarts` tells when its cache is lost; `noted` counts the prompts it was sent.
    `gone`: it has left, and its slot may be another's."""

    replica: Replica
    slot: int
    restarts: int
    capacity: float = UNKNOWN_CAPACITY
    trust: float = 1.0
    noted: int = 0
    gone: bool = False


@dataclass(slots=True, eq=False)
class Flight:
    """A request at its replica: tokens it still has to compute, those that stood before it, and those that
    it should find in the cache, which are those of `known` blocks. `noted` is its number there, `number`
    its number here; `blocks` are kept of another worker's alone."""

    member: Member
    tokens: float
    ahead: float
    known: int
    expected: float
    noted: int
    sent_at: float
    began_at: float = 0.0
    computed: bool = False
    number: int = 0
    blocks: Sequence[int] = ()


class UnderWay:
    """Which of them weigh on the backlog: from `enter` until somebody says that a prompt is `computed`, or
    until it should be, where nobody can know. It knows other workers' flights by the numbers that these
    gave them, until they end.

    `requests` are those known at each slot that have not ended, `typical` the tokens that one has to
    compute on the average.
    """

    __slots__ = ("_backlog", "_others", "_serial", "_silent", "requests", "typical")

    def __init__(self, backlog: Backlog) -> None:
        self.requests: list[float] = []
        self.typical = 0.0
        self._backlog = backlog
        self._silent: list[tuple[float, int, Flight]] = []  # Those that do not stream, by when they begin.
        self._serial = count(1)
        self._others: dict[int, dict[int, Flight]] = {}

    def open(self, slot: int) -> None:
        """A replica has come."""
        while len(self.requests) <= slot:
            self.requests.append(0)
        self.requests[slot] = 0

    def enter(self, flight: Flight, begins: float) -> None:
        """It has been sent; `begins` when its prompt should be computed, 0: somebody will tell."""
        slot, tokens = flight.member.slot, flight.tokens
        self._backlog.add(slot, tokens)
        self.requests[slot] += 1
        self.typical += (tokens - self.typical) * TYPICAL_GAIN
        flight.number = next(self._serial)
        if begins:
            heappush(self._silent, (begins, flight.number, flight))

    def computed(self, flight: Flight) -> None:
        """Its prompt is computed, or never will be."""
        if not flight.computed:
            flight.computed = True
            if not flight.member.gone:
                self._backlog.done(flight.member.slot, flight.tokens)

    def leave(self, flight: Flight) -> None:
        """It has ended."""
        self.computed(flight)
        if not flight.member.gone:
            self.requests[flight.member.slot] -= 1

    def settle(self, now: float) -> None:
        """Take off what should be computed by now."""
        silent = self._silent
        while silent and silent[0][0] <= now:
            self.computed(heappop(silent)[2])

    # Those of other workers

    def enter_other(self, worker: int, number: int, flight: Flight, begins: float) -> None:
        """Another worker has sent it, and gave it this number."""
        self.end_other(worker, number)
        self._others.setdefault(worker, {})[number] = flight
        self.enter(flight, begins)

    def computed_other(self, worker: int, number: int) -> None:
        """The prompt of another worker's has been computed."""
        flight = self._others.get(worker, {}).get(number)
        if flight is not None:
            self.computed(flight)
            flight.blocks = ()

    def end_other(self, worker: int, number: int) -> Flight | None:
        """Another worker's has ended; None when it is not known."""
        flight = self._others.get(worker, {}).pop(number, None)
        if flight is not None:
            self.leave(flight)
        return flight

    def lost(self, worker: int) -> None:
        """Nothing more will be told of all that this worker has sent."""
        for flight in self._others.pop(worker, {}).values():
            self.leave(flight)
