"""Ledgers of several workers, and of their keeper, who sees the sum."""

from collections.abc import Iterator

import pytest

from replicarouter.commons.layout import OPEN, OUTSTANDING, ROW
from replicarouter.commons.memory import Commons
from replicarouter.exchange import Stage
from replicarouter.fleet.common_ledger import KeeperLedger, WorkerLedger
from replicarouter.fleet.replica import Replica
from tests.scene import an_exchange, replica_settings


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


def workers(commons: Commons) -> list[WorkerLedger]:
    return [WorkerLedger(commons.seat(index)) for index in range(commons.workers)]


def test_a_worker_has_its_own_requests_and_sees_what_all_have_outstanding(commons: Commons) -> None:
    row = commons.add_row()
    one, other = workers(commons)
    replica = Replica.join(replica_settings(), one, 0, row)
    for ledger, count in ((one, 1), (other, 2)):
        for _ in range(count):
            ledger.seat.lease(row, 0)
            ledger.rows[row + Stage.SENT] += 1

    assert (replica.outstanding, replica.count(Stage.SENT)) == (3, 1)
    assert (one.total(Stage.SENT), other.total(Stage.SENT)) == (1, 2)
    assert one.cells[row + OUTSTANDING] == 3


def test_the_keeper_adds_up(commons: Commons) -> None:
    keeper = KeeperLedger(commons)
    rows = [keeper.add_row(), keeper.add_row()]
    one, other = workers(commons)
    replica = Replica.join(replica_settings(), keeper, 0, rows[1])
    one.rows[rows[0] + Stage.STREAMING] = 1
    other.rows[rows[1] + Stage.STREAMING] = 2
    one.seat.lease(rows[1], 0)
    one.receiving += 3
    other.receiving += 1
    one.queued["m1"] = 2
    other.queued["m1"] = 1
    other.queued["m2"] = 4

    assert (replica.outstanding, replica.count(Stage.STREAMING)) == (1, 2)
    assert {stage: keeper.total(stage) for stage in Stage} == {
        Stage.CONNECTING: 0,
        Stage.SENT: 0,
        Stage.STREAMING: 3,
        Stage.RECEIVING: 4,
        Stage.QUEUED: 7,
    }
    assert (one.receiving, keeper.receiving) == (3, 4)
    assert keeper.queued == {"m1": 3, "m2": 4}
    assert (one.total(Stage.QUEUED), one.total(Stage.RECEIVING)) == (2, 3)


def test_connections_are_told_when_they_are_published(commons: Commons) -> None:
    keeper = KeeperLedger(commons)
    row = keeper.add_row()
    for ledger in workers(commons):
        counts = ledger.connections_of(row)
        counts.open += 2
        counts.busy += 1
        assert ledger.connections_of(row) is counts
        ledger.publish()

    sums = keeper.connections_of(row)
    assert (sums.open, sums.busy) == (4, 2)


def test_the_longest_hold_is_that_of_any_worker(commons: Commons) -> None:
    keeper, (one, other) = KeeperLedger(commons), workers(commons)
    first, second = an_exchange(), an_exchange()
    assert keeper.longest_hold(100.0) == 0
    one.hold(first, 50.0)
    other.hold(second, 40.0)
    assert keeper.longest_hold(100.0) == 60
    other.let_go(second)
    assert keeper.longest_hold(100.0) == 50
    one.let_go(first)
    assert keeper.longest_hold(100.0) == 0


def test_a_slot_is_waited_for_by_those_that_the_line_has_counted(commons: Commons) -> None:
    keeper, (one, other) = KeeperLedger(commons), workers(commons)
    one.waiting_for_slot += 1
    other.seat.slots.tell_waiting(2, {0: 1.0})

    assert (one.waiting_for_slot, other.waiting_for_slot, keeper.waiting_for_slot) == (0, 2, 2)


def test_the_keeper_gives_rows_away(commons: Commons) -> None:
    keeper, (one, _) = KeeperLedger(commons), workers(commons)
    rows = [keeper.add_row() for _ in range(2)]
    assert rows == [0, ROW]
    one.rows[OPEN] = 1
    for ledger in (keeper, one):
        ledger.special.add(0)
        ledger.free_row(0)
        assert not ledger.special

    assert keeper.add_row() == 2 * ROW
    one.rows[OPEN] = 0
    assert keeper.add_row() == 0
    with pytest.raises(NotImplementedError):
        one.add_row()


def test_what_a_worker_counted_stays_when_it_is_gone(commons: Commons) -> None:
    one, _ = workers(commons)
    one.arrived.add(("/v1/models",), 2)
    one.receiving += 1
    one.queued["m1"] = 3
    commons.vacate(0)
    successor = WorkerLedger(commons.seat(0))

    assert successor.received() == {"/v1/models": 2}
    assert (successor.receiving, dict(successor.queued)) == (0, {"m1": 0})
