"""Who waits here is looked after when the bell rings, and every now and then."""

import asyncio
from collections.abc import Iterator

import pytest

from replicarouter.admission.bell import Bell, Poll
from replicarouter.commons.memory import Commons
from tests.fakes.wire import eventually


class Place:
    def __init__(self, looks: int = 0) -> None:
        self.looks = 0
        self.until = looks

    def anybody_waits(self) -> bool:
        return self.looks < self.until

    def look_again(self) -> None:
        self.looks += 1


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


async def test_all_places_look_when_it_rings(commons: Commons) -> None:
    places = [Place(), Place()]
    bell = Bell(commons.seat(0), places)
    commons.seat(1).ring(0)
    await eventually(lambda: [place.looks for place in places] == [1, 1], "looked")
    commons.ring_all()
    await eventually(lambda: [place.looks for place in places] == [2, 2], "looked")
    bell.close()
    commons.ring_all()
    for _ in range(5):
        await asyncio.sleep(0)

    assert [place.looks for place in places] == [2, 2]


async def test_it_is_looked_again_as_long_as_somebody_waits() -> None:
    place = Place(looks=3)
    poll = Poll(place)
    poll.start()
    poll.start()
    await eventually(lambda: place.looks == 3, "looked")
    place.until = 4
    poll.start()
    await eventually(lambda: place.looks == 4, "looked")
