"""Connector slots over workers, as they lie in the common memory."""

from replicarouter.commons.layout import ALL_SLOTS, ROW, SLOTS
from replicarouter.commons.memory import Commons


def test_limits_are_over_all_workers(commons: Commons) -> None:
    commons.add_row(), commons.add_row()
    one, other = commons.seat(0).slots, commons.seat(1).slots
    assert [one.take(0, 3, 2), other.take(0, 3, 2), other.take(0, 3, 2)] == [True, True, False]
    assert other.take(ROW, 3, 2)
    assert not one.is_free(ROW, 3, 2)
    assert not one.take(ROW, 3, 2)
    one.give(0, 3, 2)

    assert one.is_free(ROW, 3, 2)
    assert (commons.header[ALL_SLOTS], commons.totals[SLOTS], commons.totals[ROW + SLOTS]) == (2, 1, 1)
    assert one.take(ROW, 0, 0), "what has no limit is not counted"
    one.give(ROW, 0, 0)
    assert (commons.header[ALL_SLOTS], commons.totals[ROW + SLOTS]) == (2, 1)


def test_what_is_set_aside_counts_as_taken(commons: Commons) -> None:
    one, other = commons.seat(0).slots, commons.seat(1).slots
    assert [one.reserve(4, 10), other.reserve(4, 10), one.reserve(4, 10), other.reserve(1, 10)] == [
        4,
        4,
        2,
        0,
    ]
    one.release(5)
    assert other.reserve(9, 10) == 5
    commons.vacate(1)

    assert commons.header[ALL_SLOTS] == 1


def test_others_see_who_waits(commons: Commons) -> None:
    one, other = commons.seat(0).slots, commons.seat(1).slots
    one.tell_waiting(3, {0: 5.0, ROW: 4.0})

    assert (one.others_wait, other.others_wait) == (False, True)
    assert sorted(other.others()) == [(4.0, ROW, 0), (5.0, 0, 0)]
    assert one.others() == []
    commons.vacate(0)
    assert not other.others_wait
