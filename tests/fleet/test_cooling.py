"""How long a busy replica is preferred less."""

import pytest

from replicarouter.fleet.cooling import LONGEST, MOST, Cooling
from tests.scene import a_replica


@pytest.mark.parametrize(("said", "seconds"), [(5.0, 5.0), (0.0, 0.0), (-3.0, 0.0), (1e9, MOST)])
def test_it_cools_for_as_long_as_it_says_within_reason(said: float, seconds: float) -> None:
    replica = a_replica()
    Cooling().busy(replica, 100.0, said)

    assert not replica.cooling(100.0 + seconds)
    assert not seconds or replica.cooling(100.0 + seconds - 0.01)


def test_without_a_word_it_cools_twice_as_long_each_time() -> None:
    cooling, replica = Cooling(), a_replica()
    now, times = 100.0, []
    for _ in range(6):
        cooling.busy(replica, now, None)
        times.append(replica.cool_until - now)
        now = replica.cool_until

    assert times == [1, 2, 4, LONGEST, LONGEST, LONGEST]


def test_refusals_of_the_same_moment_are_one_time() -> None:
    cooling, replica = Cooling(), a_replica()
    for _ in range(20):
        cooling.busy(replica, 100.0, None)
    assert replica.cool_until == 101.0


def test_a_shorter_time_does_not_shorten_a_longer_one() -> None:
    cooling, replica = Cooling(), a_replica()
    cooling.busy(replica, 100.0, 30.0)
    cooling.busy(replica, 101.0, 1.0)
    assert replica.cool_until == 130.0


def test_an_answer_makes_the_next_time_a_first_one() -> None:
    cooling, replica = Cooling(), a_replica()
    for _ in range(3):
        cooling.busy(replica, replica.cool_until, None)
    cooling.start_over(replica)
    cooling.busy(replica, 100.0, None)
    assert replica.cool_until == 101.0
