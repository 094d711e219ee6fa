"""What one worker may take with the leave of the others; more is in the tests of its parts."""

import os

from replicarouter.commons.layout import (
    ALL_BODY_BYTES,
    ALL_QUEUED,
    AWAITED,
    BODY_BYTES,
    PID,
    QUEUED,
)
from replicarouter.commons.memory import Commons


def test_who_sits_down_is_known(commons: Commons) -> None:
    seat = commons.seat(1)

    assert (seat.index, seat.workers, commons.seats[1].gauges[PID]) == (1, 2, os.getpid())


def test_bytes_of_bodies_are_bounded_over_workers(commons: Commons) -> None:
    one, other = commons.seat(0), commons.seat(1)
    assert [one.take_bytes(6, 10), other.take_bytes(5, 10), other.take_bytes(4, 10)] == [True, False, True]
    assert (commons.header[ALL_BODY_BYTES], commons.gauge(BODY_BYTES)) == (10, 10)
    one.give_bytes(6)

    assert other.take_bytes(6, 10)
    assert other.gauges[BODY_BYTES] == 10


def test_the_queue_is_bounded_over_workers(commons: Commons) -> None:
    one, other = commons.seat(0), commons.seat(1)
    assert [one.enter_queue(2), other.enter_queue(2), one.enter_queue(2)] == [True, True, False]
    assert one.enter_queue()
    assert (commons.header[ALL_QUEUED], one.gauges[QUEUED]) == (3, 2)
    assert (one.others_queue, other.others_queue) == (True, True)
    one.leave_queue()
    one.leave_queue()

    assert (one.others_queue, other.others_queue) == (True, False)


def test_those_who_wait_for_one_replica_are_counted_over_workers(commons: Commons) -> None:
    one, other = commons.seat(0), commons.seat(1)
    one.await_one(0, 1)
    other.await_one(0, 2)
    one.await_one(0, -1)

    assert (commons.totals[AWAITED], commons.count(0, AWAITED)) == (2, 2)


def test_a_bell_is_heard_once_however_often_it_was_rung(commons: Commons) -> None:
    one, other = commons.seat(0), commons.seat(1)
    one.ring(1)
    one.ring_others()
    assert os.eventfd_read(other.bell) == 2
    other.ring(0)
    one.hush()
    one.hush()
    one.looked()

    assert other.looks_of(0) == 1
