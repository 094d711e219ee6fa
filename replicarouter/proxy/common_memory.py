"""How many bytes of request bodies are held in memory, over all workers."""

from replicarouter.commons.seat import Seat
from replicarouter.proxy.memory import BodyMemory

SPARE = 0.5
"""The share of the bound up to which anything spare is held: only its own worker can make it give way."""


class CommonBodyMemory(BodyMemory):
    """The bound is over the bodies of all workers."""

    __slots__ = ("_seat",)

    def __init__(self, most: int, seat: Seat) -> None:
        super().__init__(most)
        self._seat = seat

    def take(self, count: int) -> bool:
        """Note `count` more bytes as held; False, and nothing noted, when there is no room for them."""
        while not self._seat.take_bytes(count, self.most):
            if not self._spare or count > self.most:
                return False
            holder = next(iter(self._spare))
            del self._spare[holder]
            holder.give_way()
        self.held += count
        return True

    def take_spare(self, count: int) -> bool:
        """The same, where nobody else has to give way, and others still find room."""
        if not self._seat.take_bytes(count, int(self.most * SPARE)):
            return False
        self.held += count
        return True

    def give_back(self, count: int) -> None:
        """These bytes are held no longer."""
        self._seat.give_bytes(count)
        self.held -= count
