"""A listener on the wire between the router and one engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

from tests.fakes.wire import eventually
from tests.real_engine.rig import HOST


@dataclass(slots=True)
class Heard:
    """What passed on one connection, each way."""

    to_engine: bytearray = field(default_factory=bytearray)
    from_engine: bytearray = field(default_factory=bytearray)
    over: bool = False


class Tap:
    """Passes bytes on and remembers them; `port` is where the router finds the engine."""

    def __init__(self) -> None:
        self.port = 0
        self._connections: list[Heard] = []

    @classmethod
    @asynccontextmanager
    async def before(cls, engine_port: int) -> AsyncIterator["Tap"]:
        """A tap that leads to an engine; the router must be gone before it is."""
        tap = cls()

        async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard = Heard()
            tap._connections.append(heard)
            engine_reader, engine_writer = await asyncio.open_connection(HOST, engine_port)
            await asyncio.gather(
                _pass_on(reader, engine_writer, heard.to_engine),
                _pass_on(engine_reader, writer, heard.from_engine),
            )
            heard.over = True

        server = await asyncio.start_server(passed, HOST, 0)
        tap.port = server.sockets[0].getsockname()[1]
        async with server:
            yield tap
        await eventually(lambda: all(one.over for one in tap._connections), "the tap has drained")

    def forget(self) -> None:
        """Forget what was heard; connections stay."""
        for heard in self._connections:
            heard.to_engine.clear()
            heard.from_engine.clear()

    def exchange(self, request_id: str) -> Heard:
        """What passed, since it last forgot, on the connection that carried this request."""
        (heard,) = [one for one in self._connections if request_id.encode() in one.to_engine]
        return heard


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray) -> None:
    with closing(writer):
        while data := await reader.read(65536):
            heard += data
            writer.write(data)
