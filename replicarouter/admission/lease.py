"""The right to use one replica for one attempt. The only place where an outstanding count changes."""

from replicarouter.admission.fairness import Account
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica

CONNECTING = Stage.CONNECTING
"""Looked up once: on the class of an enumeration that takes as long as the rest of a lease's making."""


class Lease:
    """Counts one request in exactly one of its replica's stages, and as held by its caller, from its
    making until `end`."""

    __slots__ = ("_at", "_cells", "account", "exchange", "replica")

    def __init__(self, ledger: Ledger, replica: Replica, exchange: Exchange, account: Account) -> None:
        self.replica = replica
        self.account = account
        self.exchange = exchange
        self._cells = cells = ledger.cells
        exchange.stage = CONNECTING
        # The cell in which it is counted, which is its row's first to begin with; below 0 once it has ended.
        self._at = at = replica.row
        cells[at] += 1
        cells[at + OUTSTANDING] += 1
        account.held += 1

    def move(self, stage: Stage) -> None:
        """The request is now in `stage`; nothing happens once the lease has ended."""
        at = self._at
        if at < 0:
            return
        cells = self._cells
        cells[at] -= 1
        self._at = at = self.replica.row + stage
        cells[at] += 1
        self.exchange.stage = stage

    def end(self) -> None:
        """Give the count back. Ending twice is ending once."""
        at = self._at
        if at < 0:
            return
        cells = self._cells
        cells[at] -= 1
        cells[self.replica.row + OUTSTANDING] -= 1
        self.account.held -= 1
        self._at = -1
