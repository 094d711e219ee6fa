"""The right to use one replica for one attempt. The only place where an outstanding count changes."""

from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica


class Lease:
    """Counts one request in exactly one of its replica's stages, from its making until `end`."""

    __slots__ = ("_cells", "_exchange", "_stage", "replica")

    def __init__(self, ledger: Ledger, replica: Replica, exchange: Exchange) -> None:
        self.replica = replica
        self._cells = ledger.cells
        self._exchange = exchange
        self._stage: Stage | None = Stage.CONNECTING
        exchange.stage = Stage.CONNECTING
        self._cells[replica.row + Stage.CONNECTING] += 1
        self._cells[replica.row + OUTSTANDING] += 1

    def move(self, stage: Stage) -> None:
        """The request is now in `stage`; nothing happens once the lease has ended."""
        if self._stage is None:
            return
        cells, row = self._cells, self.replica.row
        cells[row + self._stage] -= 1
        cells[row + stage] += 1
        self._stage = self._exchange.stage = stage

    def end(self) -> None:
        """Give the count back. Ending twice is ending once."""
        if self._stage is None:
            return
        cells, row = self._cells, self.replica.row
        cells[row + self._stage] -= 1
        cells[row + OUTSTANDING] -= 1
        self._stage = None
