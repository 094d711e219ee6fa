"""The client's side of one exchange."""

import asyncio
from typing import TYPE_CHECKING

from replicarouter.errors import RouterError
from replicarouter.proxy.aiohttp_internals import ClientConnection

if TYPE_CHECKING:
    from replicarouter.proxy.relay import Relay
    from replicarouter.proxy.tunnel import Tunnel


class Caller:
    """Who gets the answer: its connection, whether it speaks HTTP/1.1, whether the connection stays
    open afterwards, the relay once an answer is on its way or the tunnel once it has become a session,
    and the task that serves the request. What most callers never change is kept on the class.

    `name` is whose request it is, `priority` 0 the most urgent. `forwards`: what it says of other
    addresses goes on to the replica. `keys_stop_here`: its credentials are for this router. `cors`: field
    lines for its browser. `refusal`: why it may not come in. `answered`: it has the whole of a replica's
    answer, which needed no relay.
    """

    relay: "Relay | None" = None
    tunnel: "Tunnel | None" = None
    task: "asyncio.Task[None] | None" = None
    name = ""
    priority = 0
    forwards = True
    keys_stop_here = False
    cors = b""
    answered = False
    refusal: RouterError | None = None

    def __init__(self, connection: ClientConnection, modern: bool, keep_alive: bool) -> None:
        self.connection = connection
        self.modern = modern
        self.keep_alive = keep_alive

    @property
    def committed(self) -> bool:
        """Whether the client has a byte of an answer: nothing can be retried any more."""
        if self.answered or self.tunnel is not None:
            return True
        return self.relay is not None and self.relay.committed

    def had_all(self) -> bool:
        """Whether it has left with all there was of its answer; what the last bytes say is noted then."""
        return self.relay is not None and self.relay.end_early()

    def interrupt(self) -> bool:
        """Stop serving the request; False when its answer is complete, or nobody serves it."""
        answer = self.relay or self.tunnel
        if self.task is None or self.answered or (answer is not None and answer.ended):
            return False
        self.task.cancel()
        return True
