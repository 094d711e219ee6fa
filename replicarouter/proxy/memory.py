"""How many bytes of request bodies are held in memory, over all requests."""

import asyncio
import ctypes
from contextlib import suppress
from typing import Protocol

from replicarouter.errors import Overloaded

MUCH = 2**25
"""Bytes given back after which the C library is asked to give memory back to the system, too, which it does
not do by itself with pieces that lie between others; and most that are on their way through meanwhile."""

REST = 1.0
"""Seconds without much that is given back: in the midst of traffic it would be needed again at once."""


class Spare(Protocol):
    """Who holds bytes that he can do without."""

    def give_way(self) -> None:
        """Let go of them, and give their room back."""


class BodyMemory:
    """A bound that all bodies share. `most` (bytes) may be replaced at any time.

    What is only kept because it might be sent again is spare: it takes no room but what is free, and gives
    way to bodies that cannot do without, the oldest first.
    """

    __slots__ = ("_given_back", "_spare", "_trimming", "held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._spare: dict[Spare, None] = {}
        self._given_back = 0
        self._trimming = False

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
        self._given_back += count
        if self._given_back >= MUCH and not self._trimming:
            self._trimming = True
            self._trim_later()

    def lend(self, holder: Spare) -> None:
        """What `holder` holds is spare until it has given way, or it is reclaimed."""
        self._spare[holder] = None

    def reclaim(self, holder: Spare) -> None:
        """What `holder` holds, if it still does, is needed from now on."""
        self._spare.pop(holder, None)

    def _trim_later(self) -> None:
        asyncio.get_running_loop().call_later(REST, self._trim, self._given_back)

    def _trim(self, before: int) -> None:
        if self._given_back - before >= MUCH:
            self._trim_later()
            return
        self._given_back, self._trimming = 0, False
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
