"""How many bytes of request bodies are held in memory, over all requests."""

from replicarouter.errors import Overloaded


class BodyMemory:
    """A bound that all bodies share. `most` (bytes) may be replaced at any time."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, count: int) -> bool:
        """Note `count` more bytes as held; False, and nothing noted, when there is no room for them."""
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
