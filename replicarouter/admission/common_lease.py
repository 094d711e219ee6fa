"""A lease where several workers share replicas: it counts in this worker's row and in the sum over all."""

from replicarouter.admission.fairness import Account
from replicarouter.admission.lease import CONNECTING, Lease
from replicarouter.commons.seat import Seat
from replicarouter.exchange import Exchange
from replicarouter.fleet.replica import Replica


class CommonLease(Lease):
    """A lease of room that `Seat.lease` has counted already, for the `place` of its caller, too."""

    __slots__ = ("_place", "_seat")

    def __init__(
        self, seat: Seat, replica: Replica, exchange: Exchange, account: Account, place: int
    ) -> None:
        self._seat = seat
        self._place = place
        self.replica = replica
        self.account = account
        self.exchange = exchange
        self._cells = cells = seat.rows
        exchange.stage = CONNECTING
        self._at = at = replica.row + CONNECTING
        cells[at] += 1
        account.held += 1

    def end(self) -> None:
        """Give the count back. Ending twice is ending once."""
        if self._at < 0:
            return
        self._cells[self._at] -= 1
        self._at = -1
        self._seat.end(self.replica.row, self._place)
        self.account.held -= 1
