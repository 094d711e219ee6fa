"""Numbers of what is there now."""

from replicarouter.commons.layout import LEVELS
from replicarouter.commons.levels import Levels, sums
from replicarouter.commons.memory import Commons


def test_levels_are_a_mapping_that_others_can_read(commons: Commons) -> None:
    one, other = (Levels("queued", commons.seat(index).shelf) for index in range(2))
    one["m1"] = 2
    one["m2"] = one.get("m2", 0) + 1
    other["m1"] = 3
    other["m1"] -= 1

    assert (dict(one), dict(other)) == ({"m1": 2, "m2": 1}, {"m1": 2})
    assert sums(commons.seats, "queued") == {"m1": 4, "m2": 1}
    del one["m2"]
    assert (len(one), sums(commons.seats, "queued")) == (1, {"m1": 4})


def test_a_dead_worker_has_nothing_and_its_successor_begins_with_that(commons: Commons) -> None:
    Levels("queued", commons.seat(0).shelf)["m1"] = 2
    commons.vacate(0)

    assert dict(Levels("queued", commons.seat(0).shelf)) == {"m1": 0}


def test_those_that_find_no_room_are_kept_to_oneself(commons: Commons) -> None:
    levels = Levels("queued", commons.seat(0).shelf)
    for number in range(LEVELS + 2):
        levels[str(number)] = number

    assert len(levels) == LEVELS + 2
    assert levels[str(LEVELS + 1)] == LEVELS + 1
    levels[str(LEVELS + 1)] += 1
    assert dict(levels)[str(LEVELS + 1)] == LEVELS + 2
    del levels[str(LEVELS + 1)]
    assert len(levels) == len(sums(commons.seats, "queued")) + 1
