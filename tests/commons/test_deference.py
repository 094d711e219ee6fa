"""How long something is left to another worker."""

from replicarouter.commons.deference import DEFERENCE, MOST_DEFERENCE, Deferences
from replicarouter.commons.memory import Commons
from tests.scene import HandClock

STEP = DEFERENCE * 0.75


def test_it_is_left_for_a_moment_to_one_that_does_not_look(commons: Commons) -> None:
    clock = HandClock()
    deferences = Deferences(commons.seat(0), clock)
    assert deferences.leaves(0, 1, 5.0)
    clock.move(STEP)
    assert deferences.leaves(0, 1, 5.0)
    clock.move(STEP)
    assert not deferences.leaves(0, 1, 5.0)
    assert deferences.leaves(8, 1, 5.0)
    assert deferences.leaves(0, 1, 6.0), "another request has its own moment"


def test_it_is_left_longer_to_one_that_looks_but_not_for_ever(commons: Commons) -> None:
    clock, other = HandClock(), commons.seat(1)
    deferences = Deferences(commons.seat(0), clock)
    left = 0.0
    while deferences.leaves(0, 1, 5.0):
        clock.move(STEP)
        left += STEP
        other.looked()

    assert MOST_DEFERENCE <= left < MOST_DEFERENCE + 2 * STEP


def test_once_somebody_has_taken_it_the_next_is_left_anew(commons: Commons) -> None:
    clock = HandClock()
    deferences = Deferences(commons.seat(0), clock)
    deferences.leaves(0, 1, 5.0)
    clock.move(2 * DEFERENCE)
    deferences.forget(0)

    assert deferences.leaves(0, 1, 5.0)
