"""What is told seldom."""

from replicarouter.clock import Seldom


def test_something_frequent_is_told_at_intervals_and_none_of_it_is_lost() -> None:
    seldom = Seldom(10.0)
    assert [seldom.tell(now) for now in (0.0, 1.0, 9.9, 10.0, 11.0, 30.0, 39.0, 40.0)] == [
        *(1, 0, 0, 3),
        *(0, 2),
        *(0, 2),
    ]
