"""What workers share is exact while they are at it, and right again after any of them has died anywhere."""

import os
import random
import time
from collections.abc import Callable

import pytest

from replicarouter.commons import layout
from replicarouter.commons.callers import NOBODY
from replicarouter.commons.heads import Head
from replicarouter.commons.layout import OUTSTANDING, ROW, SLOTS
from replicarouter.commons.memory import Commons
from replicarouter.errors import InvalidRequest
from tests.commons.children import Child
from tests.commons.conftest import Fork

MOST = 3


def hammer(commons: Commons, index: int, turns: int) -> int:
    """Take leases and give them back; how many were had."""
    seat, chance = commons.seat(index), random.Random(index)
    held: list[int] = []
    taken = 0
    for _ in range(turns):
        row = chance.choice((0, ROW))
        if chance.random() < 0.5 and seat.lease(row, MOST):
            held.append(row)
            taken += 1
        elif held:
            seat.end(held.pop())
    for row in held:
        seat.end(row)
    return taken


def test_never_more_than_the_limit_are_outstanding(commons: Commons, fork: Fork) -> None:
    rows = [commons.add_row(), commons.add_row()]
    workers = [fork(hammer, commons, index, 60_000) for index in range(2)]

    most = 0
    while not all(worker.is_over() for worker in workers):
        most = max(most, *[commons.outstanding(row) for row in rows])

    taken = [worker.result() for worker in workers]
    assert most == MOST
    assert min(taken) > 0
    assert [commons.outstanding(row) for row in rows] == [0, 0]
    assert [commons.count(row, OUTSTANDING) for row in rows] == [0, 0]


def test_a_lease_above_the_limit_is_refused_whoever_has_the_others(commons: Commons) -> None:
    row, one, other = commons.add_row(), commons.seat(0), commons.seat(1)

    assert [one.lease(row, 2), other.lease(row, 2), one.lease(row, 2)] == [True, True, False]
    assert commons.outstanding(row) == 2
    other.end(row)
    assert one.lease(row, 2)
    assert one.lease(row, 0)
    assert [seat.rows[row + OUTSTANDING] for seat in commons.seats] == [3, 0]


def busy(commons: Commons) -> None:
    """Do all that is done under the lock, until killed."""
    seat = commons.seat(0)
    book = seat.book(7)
    head = Head(1, 0, -1, NOBODY, book, 0, 1.0, 0.0, 1.0)
    number = 0
    while True:
        number += 1
        caller = seat.caller(100 + number % 50, book)
        seat.lease(number % 4 * ROW, 0, caller)
        seat.slots.take(number % 4 * ROW, 2**40, 2**40)
        seat.take_bytes(1000, 2**40)
        seat.enter_queue()
        seat.begin_waiting(caller, 1.0)
        seat.tell_heads([head] * (number % 5))
        seat.await_one(number % 4 * ROW, 1)
        seat.shelf.take("attempts", (str(number % 300),), 1)
        if number % 3:
            seat.end(number % 4 * ROW, caller)
            seat.slots.give(number % 4 * ROW, 2**40, 2**40)
            seat.give_bytes(1000)
            seat.leave_queue()
            seat.charge(caller, 1.0)
            seat.end_waiting(caller)
            seat.await_one(number % 4 * ROW, -1)
            seat.forget_caller(caller)


def everything(commons: Commons) -> list[int]:
    """Every sum that there is."""
    sums = [commons.totals[row + column] for row in range(0, 4 * ROW, ROW) for column in layout.SUMMED]
    header = [commons.header[cell] for cell in range(layout.HOLDER, layout.CALLERS_USED + 1)]
    return sums + header


@pytest.mark.timeout(300)
def test_a_worker_killed_anywhere_leaves_nothing_behind(commons: Commons, fork: Fork) -> None:
    chance = random.Random(5)
    for _ in range(4):
        commons.add_row()
    other = commons.seat(1)
    caller = other.caller(500, other.book(7))
    assert other.lease(0, 0, caller)
    assert other.slots.take(ROW, 9, 9)
    expected = everything(commons)

    inside = 0
    for _ in range(200):
        child = fork(busy, commons)
        wait_for(commons, 0, child)
        time.sleep(chance.random() * 0.004)
        child.kill()
        inside += commons.header[layout.HOLDER] == 1
        commons.vacate(0)
        assert everything(commons) == expected
        assert other.lease(0, 0, caller)
        other.end(0, caller)
    assert inside > 0, "none was killed while it had the lock"


def hold_the_lock(commons: Commons) -> None:
    seat = commons.seat(0)
    seat.lease(0, 0)
    commons.lock.acquire()
    # Dead in the middle of a lease: its own row is written, the sum is not, nor has it signed.
    seat.rows[OUTSTANDING] += 1
    time.sleep(60)


def test_a_lock_that_nobody_has_signed_is_taken_over(commons: Commons, fork: Fork) -> None:
    commons.add_row()
    child = fork(hold_the_lock, commons)
    wait_until(lambda: commons.seats[0].rows[OUTSTANDING] == 2)
    child.kill()
    commons.vacate(0)

    assert commons.outstanding(0) == 0
    assert commons.seat(1).lease(0, 1)


def test_two_that_die_with_each_other_are_both_cleared_away(commons: Commons, fork: Fork) -> None:
    commons.add_row()
    for _ in range(10):
        children = [fork(hammer, commons, index, 10**9) for index in range(2)]
        for index, child in enumerate(children):
            wait_for(commons, index, child)
        for child in children:
            child.kill()
        commons.vacate(0)
        commons.vacate(1)
        assert commons.outstanding(0) == 0


def test_who_waits_is_woken_when_a_worker_has_died(commons: Commons) -> None:
    commons.vacate(0)

    assert os.eventfd_read(commons.bells[1]) == 1


def test_a_worker_that_died_leaves_its_counts_and_no_gauges(commons: Commons) -> None:
    commons.add_row()
    seat = commons.seat(0)
    seat.gauges[layout.CLIENTS] = 7
    seat.gauges[layout.LINES_DROPPED] = 3
    seat.floats[layout.HELD_SINCE] = 5.0
    seat.looks[layout.HEARD_AT] = 9.0
    seat.rows[layout.OPEN] = 2
    offset = seat.shelf.take("attempts", ("a",), 1)
    assert offset is not None
    seat.shelf.cells[offset] = 11
    assert (commons.gauge(layout.CLIENTS), commons.held_since()) == (7, 5.0)
    commons.vacate(0)

    assert (commons.gauge(layout.CLIENTS), commons.held_since()) == (0, 0.0)
    assert (commons.gauge(layout.LINES_DROPPED), seat.looks[layout.HEARD_AT]) == (3, 0.0)
    assert commons.is_idle(0)
    assert commons.seats[0].arena[offset] == 11
    successor = commons.seat(0)
    assert successor.shelf.take("attempts", ("a",), 1) == offset


def test_rows_are_used_again_once_nobody_has_anything_there(commons: Commons) -> None:
    rows = [commons.add_row() for _ in range(3)]
    assert rows == [0, ROW, 2 * ROW]
    seat = commons.seat(0)
    seat.rows[ROW + layout.OPEN] = 1
    seat.looks[ROW + layout.HEARD_AT] = 3.0
    commons.free_row(ROW)

    assert commons.add_row() == 3 * ROW
    seat.rows[ROW + layout.OPEN] = 0
    assert commons.add_row() == ROW
    assert seat.looks[ROW + layout.HEARD_AT] == 0.0
    assert commons.add_row() == 4 * ROW
    assert commons.rows_used == 5


def test_there_is_an_end_to_rows(commons: Commons) -> None:
    for _ in range(layout.ROWS):
        commons.add_row()
    with pytest.raises(InvalidRequest, match=str(layout.ROWS)):
        commons.add_row()


def test_sums_are_over_workers_and_replicas(commons: Commons) -> None:
    for _ in range(2):
        commons.add_row()
    one, other = commons.seat(0), commons.seat(1)
    one.rows[layout.SENT] = 2
    other.rows[layout.SENT] = 3
    other.rows[ROW + layout.SENT] = 4
    assert other.slots.take(ROW, 9, 9)

    assert (commons.count(0, layout.SENT), commons.total(layout.SENT)) == (5, 9)
    assert (commons.total(SLOTS), commons.totals[ROW + SLOTS]) == (1, 1)


def wait_for(commons: Commons, index: int, child: Child) -> None:
    wait_until(lambda: commons.seats[index].gauges[layout.PID] == child.pid)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0)
