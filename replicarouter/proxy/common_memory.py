"""How many bytes of request bodies are held in memory, over all workers."""

from replicarouter.commons.seat import Seat
from replicarouter.proxy.memory import BodyMemory

SPARE = 0.5
"""The share of the bound up to which anything spare is held: only its own worker can make it give way."""


MOST_BLOCK = 2**20
"""Bytes that a worker sets aside at a time, so that most bodies need not ask the others: a thousandth of what
there is, and no more than this. Up to twice as many it keeps when they are given back."""


class CommonBodyMemory(BodyMemory):
    """The bound is over the bodies of all workers."""

    __slots__ = ("_block", "_reserved", "_seat")

    def __init__(self, most: int, seat: Seat) -> None:
        super().__init__(most)
        self._seat = seat
        self._reserved = 0
        self._block = 0

    def take(self, count: int) -> bool:
        """Note `count` more bytes as held; False, and nothing noted, when there is no room for them."""
        held = self.held + count
        if held > self._reserved:
            while not self._reserve(self.held + count, self.most):
                if not self._spare or count > self.most:
                    return False
                holder = next(iter(self._spare))
                del self._spare[holder]
                holder.give_way()
            held = self.held + count
        self.held = held
        return True

    def take_spare(self, count: int) -> bool:
        """The same, where nobody else has to give way, and others still find room."""
        if not self._reserve(self.held + count, int(self.most * SPARE)):
            return False
        self.held += count
        return True

    def give_back(self, count: int) -> None:
        """These bytes are held no longer."""
        super().give_back(count)
        if self._reserved - self.held > 2 * self._block:
            kept = self.held + self._block
            self._seat.give_bytes(self._reserved - kept)
            self._reserved = kept

    def _reserve(self, needed: int, most: int) -> bool:
        """Set so many bytes aside, and a block beside them if there is room for it."""
        more = needed - self._reserved
        if more <= 0:
            return True
        self._block = min(self.most >> 10, MOST_BLOCK)
        for further in (more + self._block, more):
            if self._seat.take_bytes(further, most):
                self._reserved += further
                return True
        return False
