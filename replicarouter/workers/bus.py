"""Messages between the keeper and one worker, over a pair of sockets that only these two have."""

import asyncio
import itertools
import pickle
import socket
from collections.abc import Awaitable, Callable, Mapping
from struct import Struct
from typing import Any, cast

from replicarouter.errors import Overloaded, RouterError
from replicarouter.tasks import TaskSet

PATIENCE = 5.0
"""Seconds in which a process that is alive answers another one."""

_LENGTH = Struct("!I")

Hear = Callable[..., None]
"""Takes what came behind the name of a message."""

Answerer = Callable[..., Awaitable[Any]]
"""Answers a question, or raises a `RouterError`."""

ASK, REPLY, FAIL = "ask", "reply", "fail"


class Bus(asyncio.Protocol):
    """One end. `hears` takes messages by their names, `answers` questions by theirs; `lost` is called when
    the other side has gone. Both sides are this very program under one user: pickles can be trusted.

    Messages come in the order in which they were sent. Who fails to understand one loses the connection, by
    which the worker ends.
    """

    def __init__(
        self, hears: Mapping[str, Hear], answers: Mapping[str, Answerer], lost: Callable[[], None]
    ) -> None:
        self._hears = hears
        self._answers = answers
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering = TaskSet()

    @property
    def open(self) -> bool:
        """Whether the other side is there."""
        return self._transport is not None and not self._transport.is_closing()

    async def connect(self, end: socket.socket) -> None:
        """Speak over this end of a pair of sockets."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=end)

    def send(self, name: str, *facts: Any) -> None:
        """Tell the other side; nothing happens when it has gone."""
        self.pass_on(packed(name, *facts))

    def pass_on(self, message: bytes) -> None:
        """Send what `packed` made, which may go to several."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(message)

    async def ask(self, question: str, *facts: Any) -> Any:
        """Ask the other side. Raises the `RouterError` that answering raised there, and `Overloaded` when no
        answer comes."""
        number = next(self._numbers)
        reply = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(ASK, number, question, facts)
        try:
            async with asyncio.timeout(PATIENCE if self.open else 0):
                return await reply
        except TimeoutError:
            raise Overloaded("Another process of this router gives no answer now; try again.") from None
        finally:
            del self._asked[number]

    def close(self) -> None:
        """End it; what was sent still arrives."""
        if self._transport is not None:
            self._transport.close()

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take whole messages out of what has come."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            name, *facts = pickle.loads(memoryview(buffer)[at + _LENGTH.size : end])  # noqa: S301 - our own
            at = end
            self._hear(name, facts)
        del buffer[:at]

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        """Tell who asked that no answer will come."""
        self._transport = None
        for reply in self._asked.values():
            if not reply.done():
                reply.set_exception(Overloaded("Another process of this router has ended; try again."))
        self._lost()

    def _hear(self, name: str, facts: list[Any]) -> None:
        if name == ASK:
            self._answering.start(self._answer(*facts), f"answer {facts[1]}")
        elif name in (REPLY, FAIL):
            number, value = facts
            reply = self._asked.get(number)
            if reply is None or reply.done():
                return
            if name == REPLY:
                reply.set_result(value)
            else:
                reply.set_exception(value)
        else:
            self._hears[name](*facts)

    async def _answer(self, number: int, question: str, facts: tuple[Any, ...]) -> None:
        try:
            value = await self._answers[question](*facts)
        except RouterError as error:
            self.send(FAIL, number, error)
        else:
            self.send(REPLY, number, value)


def packed(name: str, *facts: Any) -> bytes:
    """A message as it goes over the wire."""
    body = pickle.dumps((name, *facts), pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body
