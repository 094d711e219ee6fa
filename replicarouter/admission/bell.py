"""Wakes those who wait here when another worker has made room, and now and then in case nobody told."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from replicarouter.commons.seat import Seat

POLL = 0.02
"""Seconds between two looks while somebody waits here: who should have rung may be dead, or stopped."""


class Waits(Protocol):
    """Where requests may wait for what others have, too."""

    def anybody_waits(self) -> bool:
        """Whether a request waits here."""

    def look_again(self) -> None:
        """Give those who wait what there is for them."""


class Bell:
    """A worker's bell. To be opened on the running loop; `close` it in the end."""

    def __init__(self, seat: Seat, places: Sequence[Waits]) -> None:
        self._seat = seat
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(seat.bell, self._rung)

    def close(self) -> None:
        """Listen no more."""
        self._loop.remove_reader(self._seat.bell)

    def _rung(self) -> None:
        self._seat.hush()
        for place in self._places:
            place.look_again()


class Poll:
    """Looks again every `POLL` seconds, as long as anybody waits."""

    def __init__(self, place: Waits) -> None:
        self._place = place
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Somebody waits."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._place.anybody_waits():
            self._place.look_again()
            self.start()
