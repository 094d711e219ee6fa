"""An answer that is kept from the client while it is decided whether another replica gets the request."""

from replicarouter.protocol.framing import Dechunker
from replicarouter.protocol.refusal import MOST_HELD, Refusal, read_refusal
from replicarouter.protocol.response_head import ResponseHead

HOLD = 1.0
"""Seconds for which an answer is held: one that takes longer to say why it refuses is passed on."""


class HeldAnswer:
    """A head and what has come of its body, in its framing."""

    __slots__ = ("_framing", "data", "head", "surplus")

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.data = b""
        self.surplus = False
        self._framing = head.framing()

    def feed(self, data: bytes) -> bool:
        """Take bytes of the body; True when it is complete. Raises `BadFraming`."""
        end = self._framing.feed(data)
        self.surplus = 0 <= end < len(data)
        self.data += data if end < 0 else data[:end]
        return end >= 0

    @property
    def too_long(self) -> bool:
        """Whether more has come than is worth holding."""
        return len(self.data) > MOST_HELD

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection completes it."""
        return self._framing.ends_with_connection

    @property
    def reusable(self) -> bool:
        """Whether the connection that brought the whole of it may serve another request."""
        return self.head.keep_alive and not self.surplus and not self.ends_with_connection

    def content(self) -> bytes:
        """The body without its framing."""
        return Dechunker().feed(self.data) if self.head.chunked else self.data

    def read(self) -> Refusal | None:
        """What it says of the request."""
        return read_refusal(self.head, self.content())
