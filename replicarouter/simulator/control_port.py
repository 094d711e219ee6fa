"""`/sim/*` at a port of its own, which answers whatever the engine's port does."""

import asyncio

from replicarouter.simulator.answers import Answer
from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.control import Control
from replicarouter.simulator.entrance import Entrance
from replicarouter.simulator.faults import Fault
from replicarouter.simulator.records import Records
from replicarouter.simulator.server import Connection, IdleConnections
from replicarouter.simulator.wire import HttpRequest, Reply

_KEEP_ALIVE = 60.0


class ControlPort:
    """Serves one engine's `Control`; nothing is generated here, and no fault reaches it."""

    model = ""
    most_answers = 0
    sse_keep_alive = 0.0

    def __init__(self, control: Control) -> None:
        self.records = Records()
        self.idle = IdleConnections(asyncio.get_running_loop(), _KEEP_ALIVE)
        self._control = control
        self._connections: set[Connection] = set()
        self._entrance = Entrance(lambda: Connection(self))

    async def start(self, host: str, port: int) -> int:
        """Listen; the port. OSError when it cannot be had."""
        port = await self._entrance.bind(host, port)
        self._entrance.listen()
        return port

    async def stop(self) -> None:
        """Close the port and every connection."""
        self.idle.stop()
        await self._entrance.close()
        for connection in self._connections:
            connection.abort()

    def respond(self, request: HttpRequest) -> Reply | GenerationRequest:
        """The control's answer, whatever the path."""
        return self._control.respond(request)

    def generates(self, _request: HttpRequest) -> bool:
        """Nothing is."""
        return False

    def meet(self, _request: HttpRequest) -> Reply | Fault | None:
        """No fault."""
        return None

    def connected(self, connection: Connection) -> None:
        """A client has come."""
        self._connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """It has gone."""
        self._connections.discard(connection)

    def submit(self, answer: Answer) -> None:
        """Never asked: nothing generates."""

    def cancel(self, answer: Answer) -> None:
        """Never asked: nothing generates."""
