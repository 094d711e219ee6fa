"""Where every accepted request is. The counts sit in one flat list; a lease is their only writer.

Row of a replica: connecting, sent, streaming, outstanding, and what only several workers need. Receiving and
queued belong to no replica.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from replicarouter.cells import Counter, Shelf, Whole
from replicarouter.commons import layout
from replicarouter.exchange import Exchange, Stage

if TYPE_CHECKING:
    from replicarouter.commons.seat import Seat

OUTSTANDING = layout.OUTSTANDING
ROW = layout.ROW
HELD_TOO_LONG = 0.1
"""Seconds a request may wait in the router before the fleet may be called proxy-limited."""


class Connections(Protocol):
    """Connections to one replica: all that are `open`, and those a request uses now (`busy`)."""

    open: int
    busy: int


@dataclass(slots=True)
class OwnConnections:
    """Those of a process that is alone."""

    open: int = 0
    busy: int = 0


class Special(set[int]):
    """Rows of replicas whose cost is not just what is outstanding there, or was not lately. `version` changes
    with all that comes or goes, and with whatever is noted of one that is there."""

    version = 0

    def add(self, row: int) -> None:
        """What makes it special has changed."""
        super().add(row)
        self.version += 1

    def discard(self, row: object) -> None:
        """It is as all others."""
        if row in self:
            super().discard(row)
            self.version += 1


class Ledger:
    """Counts of requests by stage, and the exchanges themselves while they are in flight.

    This is the one of a process that is alone. `fleet.common_ledger` has those of workers and of their
    keeper. `cells` are for whoever compares replicas: `OUTSTANDING` in a row of it is what all workers have
    there; `rows` is what this one has. `seat` is where a worker sits.
    """

    seat: "Seat | None" = None

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.cells: Whole = []
        self.rows: Whole = self.cells
        self.receiving = 0
        self.queued: MutableMapping[str, int] = {}
        self.in_flight: dict[str, Exchange] = {}
        self.arrived = Counter("arrived", shelf)  # endpoint
        self.finished = Counter("finished", shelf)  # endpoint, model, replica, outcome
        self.attempts = Counter("attempts", shelf)  # replica, result
        self.retries = Counter("retries", shelf)  # reason
        self.client_gone = Counter("client_gone", shelf)  # stage
        self.ejections = Counter("ejections", shelf)  # replica, reason
        self.special = Special()
        self.waiting_for_slot = 0
        self.connections: list[Connections] = []
        self._free_rows: list[int] = []
        self._held: dict[Exchange, float] = {}

    def received(self) -> dict[str, int]:
        """Requests whose head was read, by endpoint."""
        return {labels[0]: count for labels, count in self.arrived}

    def add_row(self) -> int:
        """Make room for one more replica; returns the index of its first cell."""
        if self._free_rows:
            return self._free_rows.pop()
        cells = self.cells
        assert isinstance(cells, list)
        row = len(cells)
        cells.extend([0] * ROW)
        self.connections.append(OwnConnections())
        return row

    def free_row(self, row: int) -> None:
        """Take back the row of a replica that is gone; its counts must be zero."""
        # Its idle connections close later, and count down the old object.
        self.connections[row // ROW] = OwnConnections()
        self.special.discard(row)
        self._free_rows.append(row)

    def connections_of(self, row: int) -> Connections:
        """The connection counts of the replica that owns `row`."""
        return self.connections[row // ROW]

    def count(self, row: int, stage: Stage) -> int:
        """Requests of the replica that owns `row` in one of its three stages."""
        return self.cells[row + stage]

    def last_byte_from(self, name: str) -> float:
        """When the last byte came of the responses now on their way from the replica of this name;
        0 without any."""
        latest = 0.0
        for exchange in self.in_flight.values():
            if exchange.replica == name:
                exchange.refresh()
                latest = max(latest, exchange.last_byte_at)
        return latest

    def total(self, stage: Stage) -> int:
        """Requests in this stage over the whole fleet."""
        if stage is Stage.RECEIVING:
            return self.receiving
        if stage is Stage.QUEUED:
            return sum(self.queued.values())
        return sum(self.cells[stage::ROW])

    def hold(self, exchange: Exchange, now: float) -> None:
        """Note that the router itself makes this request wait (for room or for a connector slot)."""
        self._held[exchange] = now

    def let_go(self, exchange: Exchange) -> None:
        """The wait of `hold` is over, however it ended."""
        self._held.pop(exchange, None)

    def longest_hold(self, now: float) -> float:
        """Seconds the longest-waiting held request has been waiting; 0 when none is."""
        oldest = next(iter(self._held.values()), now)
        return now - oldest

    def oldest_first(self) -> Iterator[Exchange]:
        """The exchanges in flight, in the order of their arrival."""
        return iter(list(self.in_flight.values()))
