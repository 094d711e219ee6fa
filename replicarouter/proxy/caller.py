"""The client's side of one exchange."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replicarouter.proxy.aiohttp_internals import ClientConnection

if TYPE_CHECKING:
    from replicarouter.proxy.relay import Relay


@dataclass(slots=True, eq=False)
class Caller:
    """Who gets the answer: its connection, whether it speaks HTTP/1.1, whether the connection stays
    open afterwards, and the relay once an answer is on its way."""

    connection: ClientConnection
    modern: bool
    keep_alive: bool
    relay: "Relay | None" = None

    @property
    def committed(self) -> bool:
        """Whether the client has a byte of an answer: nothing can be retried any more."""
        return self.relay is not None and self.relay.committed
