"""One end of a TCP connection, seen raw: the bytes in order, and when and how the peer ended it."""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar, cast, overload

DEADLINE = 5.0
"""Seconds that anything here waits before it fails with a message."""

Ending = Literal["fin", "rst"]
Found = TypeVar("Found")

LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


class PeerGone(Exception):
    """The peer ended the connection before what was asked for had arrived; `got` is what did."""

    def __init__(self, what: str, got: bytes, ending: Ending | None) -> None:
        super().__init__(f"peer sent {ending or 'nothing'} before {what}; last bytes {got[-200:]!r}")
        self.got = got


@overload
async def eventually(
    condition: Callable[[], Awaitable[Found]], what: str, *, deadline: float = DEADLINE
) -> Found: ...
@overload
async def eventually(condition: Callable[[], Found], what: str, *, deadline: float = DEADLINE) -> Found: ...
async def eventually(condition: Callable[[], Any], what: str, *, deadline: float = DEADLINE) -> Any:
    """Ask `condition` until it is true; its value. Fails naming `what` and the last answer."""
    end = time.monotonic() + deadline
    while True:
        answer = condition()
        value = await answer if isinstance(answer, Awaitable) else answer
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {what} (last seen: {value!r})")
        await asyncio.sleep(0.003)


class Wire(asyncio.Protocol):
    """What one end has received and not read yet, plus the peer's farewell."""

    transport: asyncio.Transport

    def __init__(self, connected: Callable[["Wire"], None] | None = None) -> None:
        self.unread = bytearray()
        self.count_received = 0
        self.count_written = 0
        self.ending: Ending | None = None
        self.ended_at: float | None = None
        self.closed = False
        self.write_blocked = False
        self._connected = connected
        self._changed = asyncio.Event()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._connected is not None:
            self._connected(self)

    def data_received(self, data: bytes) -> None:
        self.unread += data
        self.count_received += len(data)
        self._changed.set()

    def eof_received(self) -> bool:
        self._end("fin")
        # TLS has no half-open connections: the transport closes behind the peer's end.
        return not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if exc is not None:
            self._end("rst")
        elif self._secure:
            # A peer that ends TLS without its farewell is noticed only here.
            self._end("fin")
        self._changed.set()

    @property
    def _secure(self) -> bool:
        return self.transport.get_extra_info("sslcontext") is not None

    def pause_writing(self) -> None:
        self.write_blocked = True

    def resume_writing(self) -> None:
        self.write_blocked = False
        self._changed.set()

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            self.ended_at = time.monotonic()
        self._changed.set()

    # Waiting and reading

    async def until(self, condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
        """Wait until `condition` holds; it is looked at after each event of the connection."""
        try:
            async with asyncio.timeout(deadline):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"not within {deadline} s: {what}; unread {bytes(self.unread[-300:])!r}, "
                f"peer's ending: {self.ending}"
            ) from None

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self.ending is not None or self.closed

    async def read_until(self, marker: bytes, deadline: float = DEADLINE) -> bytes:
        """The bytes up to and including `marker`."""
        await self.until(lambda: marker in self.unread or self.over, repr(marker), deadline)
        if marker not in self.unread:
            raise PeerGone(repr(marker), self._take(len(self.unread)), self.ending)
        return self._take(self.unread.index(marker) + len(marker))

    async def read_exactly(self, count: int, deadline: float = DEADLINE) -> bytes:
        await self.until(lambda: len(self.unread) >= count or self.over, f"{count} bytes", deadline)
        if len(self.unread) < count:
            raise PeerGone(f"{count} bytes", self._take(len(self.unread)), self.ending)
        return self._take(count)

    async def read_to_end(self, deadline: float = DEADLINE) -> bytes:
        """All that comes until the peer ends the connection."""
        await self.until(lambda: self.over, "the peer's end", deadline)
        return self._take(len(self.unread))

    async def expect(self, wanted: bytes, deadline: float = DEADLINE) -> None:
        """Wait until `wanted` is among the unread bytes; reads nothing away."""
        await self.until(lambda: wanted in self.unread or self.over, repr(wanted[:200]), deadline)
        if wanted not in self.unread:
            raise PeerGone(repr(wanted[:200]), bytes(self.unread), self.ending)

    async def gone(self, deadline: float = DEADLINE) -> Ending:
        """Wait for the peer to end the connection; how it did."""
        await self.until(lambda: self.ending is not None, "the peer's end", deadline)
        assert self.ending is not None
        return self.ending

    def _take(self, count: int) -> bytes:
        taken = bytes(self.unread[:count])
        del self.unread[:count]
        return taken

    # Writing and ending

    async def send(self, data: bytes, deadline: float = DEADLINE) -> None:
        """Write, and wait until the operating system has taken (nearly) all of it."""
        if self.closed or self.transport.is_closing():
            raise PeerGone("a write", bytes(self.unread), self.ending)
        self.count_written += len(data)
        self.transport.write(data)
        await self.until(lambda: not self.write_blocked or self.closed, "room to write", deadline)

    def send_at_once(self, data: bytes) -> None:
        """Hand a few bytes to the operating system before returning, past the event loop."""
        assert os.write(self.transport.get_extra_info("socket").fileno(), data) == len(data)

    def pause(self) -> None:
        """Stop taking bytes; the peer's end is not noticed either."""
        self.transport.pause_reading()

    def resume(self) -> None:
        self.transport.resume_reading()

    def half_close(self) -> None:
        """FIN, but go on reading."""
        self.transport.write_eof()

    def close(self) -> None:
        """FIN after what has been written."""
        self.transport.close()

    def reset(self) -> None:
        """RST, at once; nothing if the connection is over."""
        if self.closed or self.transport.is_closing():
            return
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT_AT_ALL
        )
        self.transport.abort()
