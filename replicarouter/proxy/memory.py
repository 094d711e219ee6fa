"""How many bytes of request bodies are held in memory, over all requests."""

from typing import Protocol

from replicarouter.errors import Overloaded


class Spare(Protocol):
    """Who holds bytes that he can do without."""

    def give_way(self) -> None:
        """Let go of them, and give their room back."""


class BodyMemory:
    """A bound that all bodies share. `most` (bytes) may be replaced at any time.

    What is only kept because it might be sent again is spare: it takes no room but what is free, and gives
    way to bodies that cannot do without, the oldest first.
    """

    __slots__ = ("_spare", "held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._spare: dict[Spare, None] = {}

    def take(self, count: int) -> bool:
        """Note `count` more bytes as held; False, and nothing noted, when there is no room for them."""
        while self.held + count > self.most:
            if not self._spare or count > self.most:
                return False
            holder = next(iter(self._spare))
            del self._spare[holder]
            holder.give_way()
        self.held += count
        return True

    def take_spare(self, count: int) -> bool:
        """The same, where nobody else has to give way."""
        if self.held + count > self.most:
            return False
        self.held += count
        return True

    def full(self) -> Overloaded:
        """The error for who cannot do without the room that `take` did not give."""
        return Overloaded(
            "The router holds as many bytes of request bodies as it may; try again shortly. "
            "The operator can raise max_buffered_bytes."
        )

    def give_back(self, count: int) -> None:
        """These bytes are held no longer."""
        self.held -= count

    def lend(self, holder: Spare) -> None:
        """What `holder` holds is spare until it has given way, or it is reclaimed."""
        self._spare[holder] = None

    def reclaim(self, holder: Spare) -> None:
        """What `holder` holds, if it still does, is needed from now on."""
        self._spare.pop(holder, None)
