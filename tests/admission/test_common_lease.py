"""A lease counts in its worker's row; the sum over workers is counted before it is made, and at its end."""

from collections.abc import Iterator

import pytest

from replicarouter.admission.common_fairness import CommonBook
from replicarouter.admission.common_lease import CommonLease
from replicarouter.commons.layout import OUTSTANDING
from replicarouter.commons.memory import Commons
from replicarouter.exchange import Stage
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.replica import Replica
from tests.scene import an_exchange, replica_settings


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


@pytest.mark.parametrize("counts_for_caller", [True, False])
def test_a_lease_is_counted_and_taken_back_once(commons: Commons, counts_for_caller: bool) -> None:
    row = commons.add_row()
    ledger = WorkerLedger(commons.seat(1))
    seat = ledger.seat
    replica = Replica.join(replica_settings(), ledger, 0, row)
    account = CommonBook({}, seat, "m1").account("a")
    place = account.place if counts_for_caller else -1
    exchange = an_exchange()
    assert seat.lease(row, 1, place)
    lease = CommonLease(seat, replica, exchange, account, place)
    stages = [replica.count(Stage.CONNECTING)]
    lease.move(Stage.SENT)
    stages += [replica.count(Stage.CONNECTING), replica.count(Stage.SENT)]

    assert (stages, exchange.stage) == ([1, 0, 1], Stage.SENT)
    assert (commons.outstanding(row), commons.seats[1].rows[row + OUTSTANDING]) == (1, 1)
    assert (account.held, account.total) == (1, int(counts_for_caller))
    lease.end()
    lease.end()
    lease.move(Stage.STREAMING)
    assert not any(commons.seats[1].rows[row : row + 8])
    assert (commons.outstanding(row), account.held, account.total) == (0, 0, 0)
