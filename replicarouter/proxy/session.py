"""Who gets the bytes of a client's connection once it no longer speaks HTTP."""

import asyncio
from contextlib import suppress
from typing import Protocol


class Session(Protocol):
    """Who gets the bytes of a client's connection that no longer speaks HTTP."""

    def take(self, data: bytes) -> None:
        """Bytes have arrived."""

    def left(self) -> None:
        """The client has closed its side, in order or not; it may be told so twice."""


class Farewell:
    """Reads on until the client has left too: closing on unread bytes could destroy what was written."""

    __slots__ = ("client_left",)

    def __init__(self, client_left: "asyncio.Future[None]") -> None:
        self.client_left = client_left

    async def bid(self, transport: asyncio.Transport, seconds: float) -> None:
        """Show the client the end, and wait at most so long until it has left."""
        # Where the client has reset the connection asyncio's own transport raises what the system says of it.
        with suppress(TimeoutError, OSError):
            transport.write_eof()
            transport.resume_reading()
            async with asyncio.timeout(seconds):
                await self.client_left

    def take(self, data: bytes) -> None:
        """It is of no interest any more."""

    def left(self) -> None:
        """The connection can be closed."""
        if not self.client_left.done():
            self.client_left.set_result(None)
