"""The client's side of one exchange."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replicarouter.errors import RouterError
from replicarouter.proxy.aiohttp_internals import ClientConnection

if TYPE_CHECKING:
    from replicarouter.proxy.relay import Relay
    from replicarouter.proxy.tunnel import Tunnel


@dataclass(slots=True, eq=False)
class Caller:
    """Who gets the answer: its connection, whether it speaks HTTP/1.1, whether the connection stays
    open afterwards, the relay once an answer is on its way or the tunnel once it has become a session,
    and the task that serves the request."""

    connection: ClientConnection
    modern: bool
    keep_alive: bool
    relay: "Relay | None" = None
    tunnel: "Tunnel | None" = None
    task: "asyncio.Task[None] | None" = None
    name: str = ""
    priority: int = 0
    forwards: bool = True
    keys_stop_here: bool = False
    cors: bytes = b""
    refusal: RouterError | None = None

    @property
    def committed(self) -> bool:
        """Whether the client has a byte of an answer: nothing can be retried any more."""
        if self.tunnel is not None:
            return True
        return self.relay is not None and self.relay.committed

    def interrupt(self) -> bool:
        """Stop serving the request; False when its answer is complete, or nobody serves it."""
        answer = self.relay or self.tunnel
        if self.task is None or (answer is not None and answer.ended):
            return False
        self.task.cancel()
        return True
