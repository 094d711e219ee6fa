"""The ledger of a router of several processes: each worker writes its part, their keeper reads the sum."""

from collections.abc import MutableMapping
from dataclasses import dataclass

from replicarouter.commons.layout import (
    BUSY,
    HELD_SINCE,
    OPEN,
    RECEIVING,
    ROW,
    WAITING_FOR_SLOT,
)
from replicarouter.commons.levels import Levels, sums
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.ledger import Connections, Ledger, OwnConnections

QUEUED = "queued"
"""The series of what waits in the queue, by model."""


@dataclass(slots=True)
class SumOfConnections:
    """Those of all workers."""

    open: int
    busy: int


class WorkerLedger(Ledger):
    """One worker's: its requests alone, but what is outstanding in `cells` is that of all workers.

    Rows are given away by the keeper. How many connections there are is told by `publish`, now and then.
    """

    seat: Seat

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        super().__init__(seat.shelf)
        self.cells, self.rows = seat.totals, seat.rows
        self.queued = Levels(QUEUED, seat.shelf)
        self._open: dict[int, OwnConnections] = {}

    @property
    def receiving(self) -> int:
        """Requests whose body is arriving."""
        return self.seat.gauges[RECEIVING]

    @receiving.setter
    def receiving(self, count: int) -> None:
        self.seat.gauges[RECEIVING] = count

    @property
    def waiting_for_slot(self) -> int:
        """Requests that wait for a connector slot. Those who take them in line count them."""
        return self.seat.gauges[WAITING_FOR_SLOT]

    @waiting_for_slot.setter
    def waiting_for_slot(self, count: int) -> None:
        """Nothing: `Seat.slots` has counted them, with the sum over all workers."""

    def add_row(self) -> int:
        """Not here."""
        raise NotImplementedError

    def free_row(self, row: int) -> None:
        """The replica that had it is gone."""
        self.special.discard(row)

    def connections_of(self, row: int) -> Connections:
        """Its connections to the replica that owns `row`."""
        counts = self._open.get(row)
        if counts is None:
            counts = self._open[row] = OwnConnections()
        return counts

    def publish(self) -> None:
        """Tell of its connections."""
        rows = self.seat.rows
        for row, counts in self._open.items():
            rows[row + OPEN], rows[row + BUSY] = counts.open, counts.busy

    def count(self, row: int, stage: Stage) -> int:
        """Its requests of the replica that owns `row` in one of its three stages."""
        return self.rows[row + stage]

    def total(self, stage: Stage) -> int:
        """Its requests in this stage over the whole fleet."""
        if stage.value < ROW and stage not in {Stage.RECEIVING, Stage.QUEUED}:
            return sum(self.rows[stage::ROW])
        return super().total(stage)

    def hold(self, exchange: Exchange, now: float) -> None:
        """Note that the router itself makes this request wait (for room or for a connector slot)."""
        super().hold(exchange, now)
        self._tell_oldest()

    def let_go(self, exchange: Exchange) -> None:
        """The wait of `hold` is over, however it ended."""
        super().let_go(exchange)
        self._tell_oldest()

    def _tell_oldest(self) -> None:
        self.seat.floats[HELD_SINCE] = next(iter(self._held.values()), 0.0)


class KeeperLedger(Ledger):
    """What all workers have. `arrived` and its like are for the keeper's own events; what workers count is
    in their series."""

    def __init__(self, commons: Commons) -> None:
        self.commons = commons
        super().__init__()
        self.cells = self.rows = commons.totals

    @property
    def receiving(self) -> int:
        """Requests whose body is arriving."""
        return self.commons.gauge(RECEIVING)

    @receiving.setter
    def receiving(self, count: int) -> None:
        """Nothing: the keeper has none."""

    @property
    def waiting_for_slot(self) -> int:
        """Requests that wait for a connector slot."""
        return self.commons.gauge(WAITING_FOR_SLOT)

    @waiting_for_slot.setter
    def waiting_for_slot(self, count: int) -> None:
        """Nothing: the keeper has none."""

    @property
    def queued(self) -> MutableMapping[str, int]:
        """Requests in the queue, by model: a copy."""
        return sums(self.commons.seats, QUEUED)

    @queued.setter
    def queued(self, counts: MutableMapping[str, int]) -> None:
        """Nothing: the keeper has none."""

    def add_row(self) -> int:
        """Make room for one more replica; returns the index of its first cell. Raises `InvalidRequest`."""
        return self.commons.add_row()

    def free_row(self, row: int) -> None:
        """Take back the row of a replica that is gone; its counts must be zero."""
        self.special.discard(row)
        self.commons.free_row(row)

    def connections_of(self, row: int) -> Connections:
        """The connections of all workers to the replica that owns `row`: a copy."""
        return SumOfConnections(self.commons.count(row, OPEN), self.commons.count(row, BUSY))

    def count(self, row: int, stage: Stage) -> int:
        """Requests of the replica that owns `row` in one of its three stages."""
        return self.commons.count(row, stage)

    def total(self, stage: Stage) -> int:
        """Requests in this stage over the whole fleet."""
        if stage in {Stage.RECEIVING, Stage.QUEUED}:
            return super().total(stage)
        return self.commons.total(stage)

    def longest_hold(self, now: float) -> float:
        """Seconds the longest-waiting held request has been waiting; 0 when none is."""
        since = self.commons.held_since()
        return now - since if since else 0.0
