"""How long one worker leaves something to another, whose turn it is: it may be dead, or stopped."""

from dataclasses import dataclass

from replicarouter.clock import Clock
from replicarouter.commons.seat import Seat

DEFERENCE = 0.02
"""Seconds for which something is left to a worker that does not even look."""

MOST_DEFERENCE = 0.1
"""Seconds for which it is left to one that looks and does not take it: it may believe something else of that
replica for as long as news take."""


@dataclass(slots=True)
class Deference:
    """Something is left to a request, told by its seat and since when it waits: from when on; and how often
    its worker had looked when it was, `at` that time."""

    request: tuple[int, float]
    since: float
    looks: int
    at: float


class Deferences:
    """Those of one worker, by what they are about (the row of a replica)."""

    def __init__(self, seat: Seat, clock: Clock) -> None:
        self._seat = seat
        self._clock = clock
        self._now: dict[int, Deference] = {}

    def leaves(self, row: int, seat: int, since: float) -> bool:
        """Whether it is to be left to this request, still."""
        now, looks, request = self._clock(), self._seat.looks_of(seat), (seat, since)
        before = self._now.get(row)
        if before is None or before.request != request:
            self._now[row] = Deference(request, now, looks, now)
            return True
        if now - before.since >= MOST_DEFERENCE:
            return False
        if before.looks != looks:
            before.looks, before.at = looks, now
        return now - before.at < DEFERENCE

    def forget(self, row: int) -> None:
        """Somebody has taken it."""
        self._now.pop(row, None)
