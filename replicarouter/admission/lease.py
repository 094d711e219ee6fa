"""The right to use one replica for one attempt. The only place where an outstanding count changes."""

from replicarouter.admission.fairness import Account
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica

_CONNECTING = Stage.CONNECTING
"""Looked up once: on the class of an enumeration that takes as long as the rest of a lease's making."""


class Lease:
    """Counts one request in exactly one of its replica's stages, and as held by its caller, from its
    making until `end`."""

    __slots__ = ("_cells", "_stage", "account", "exchange", "replica")

    def __init__(self, ledger: Ledger, replica: Replica, exchange: Exchange, account: Account) -> None:
        self.replica = replica
        self.account = account
        self.exchange = exchange
        self._cells = cells = ledger.cells
        self._stage: Stage | None = _CONNECTING
        exchange.stage = _CONNECTING
        row = replica.row
        cells[row + _CONNECTING] += 1
        cells[row + OUTSTANDING] += 1
        account.held += 1

    def move(self, stage: Stage) -> None:
        """The request is now in `stage`; nothing happens once the lease has ended."""
        if self._stage is None:
            return
        cells, row = self._cells, self.replica.row
        cells[row + self._stage] -= 1
        cells[row + stage] += 1
        self._stage = self.exchange.stage = stage

    def end(self) -> None:
        """Give the count back. Ending twice is ending once."""
        if self._stage is None:
            return
        cells, row = self._cells, self.replica.row
        cells[row + self._stage] -= 1
        cells[row + OUTSTANDING] -= 1
        self.account.held -= 1
        self._stage = None
