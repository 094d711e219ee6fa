"""What everybody may read of one worker."""

from replicarouter.commons import layout
from replicarouter.commons.memory import Commons
from replicarouter.commons.place import SEAT


def test_places_are_whole_pages_of_their_own(commons: Commons) -> None:
    one, other = commons.seats
    one.gauges[layout.CLIENTS] = 5
    other.floats[layout.LAG] = 0.5

    assert SEAT * layout.CELL % 4096 == 0
    assert (one.gauges[layout.CLIENTS], other.gauges[layout.CLIENTS]) == (5, 0)
    assert (one.floats[layout.LAG], other.floats[layout.LAG]) == (0.0, 0.5)


def test_series_are_listed_anew_only_when_they_changed(commons: Commons) -> None:
    place, shelf = commons.seats[0], commons.seat(0).shelf
    assert place.series() == {}
    shelf.take("a", ("x",), 1)
    listed = place.series()

    assert listed == {("a", ("x",)): (layout.LEVELS, 1)}
    assert place.series() is listed
    shelf.drop("a", ("x",))
    assert place.series() == {}


def test_what_was_being_written_when_the_worker_died_is_whole_again(commons: Commons) -> None:
    place = commons.seats[0]
    commons.seat(0).shelf.take("a", (), 1)
    place.gauges[layout.SERIES] += 1
    place.clear(0)

    assert place.gauges[layout.SERIES] % 2 == 0
    assert list(place.series()) == [("a", ())]
