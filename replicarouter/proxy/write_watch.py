"""Watches that a client whose buffer is full, or whose connection is closing, takes something in time."""

import asyncio
import fcntl
import struct
import termios

_INT = struct.Struct("i")


class WriteWatch:
    """One connection's watch; `limit` is the longest time in seconds for which the client may take nothing,
    0 for no bound."""

    __slots__ = ("_closing", "_limit", "_timer", "_untaken")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None
        self._untaken = 0
        self._closing = False

    def start(self, transport: asyncio.Transport | None) -> None:
        """The buffer is full."""
        if self._limit > 0 and transport is not None:
            self._untaken = untaken(transport)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit, self._overdue, transport)

    def see_off(self, transport: asyncio.Transport) -> None:
        """The connection closes as soon as its buffer is empty, be it full now or not."""
        if transport.get_write_buffer_size() and not self._closing:
            self.stop()
            self._closing = True
            self.start(transport)

    def eased(self) -> None:
        """The buffer is full no longer."""
        if not self._closing:
            self.stop()

    def stop(self) -> None:
        """The connection is closed, or nothing depends on its client any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self, transport: asyncio.Transport) -> None:
        """Close a connection that took nothing; a slow one only has to go on."""
        if untaken(transport) >= self._untaken:
            transport.abort()
        else:
            self.start(transport)


def unwritten(transport: asyncio.Transport) -> int:
    """Bytes that would be lost if the process ended now. Below a TLS transport there is another one whose
    buffer cannot be seen; it is empty once the client has taken all that the kernel has."""
    if transport.get_extra_info("sslcontext") is None:
        return transport.get_write_buffer_size()
    return untaken(transport)


def untaken(transport: asyncio.Transport) -> int:
    """Bytes that the client has not taken: in the transport's buffer and in the kernel's."""
    connection = transport.get_extra_info("socket")
    in_kernel = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    return transport.get_write_buffer_size() + int(_INT.unpack(in_kernel)[0])
