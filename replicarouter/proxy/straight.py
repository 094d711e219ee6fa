"""Writing to a TCP connection past its transport: that spares its part of the work, and with uvloop before
0.23 the wait for the end of the loop's turn. And reading what it has not read yet."""

import asyncio
import socket

MOST_READ = 65536
"""Bytes that are read past a transport at a time."""


def straight_to(transport: asyncio.BaseTransport | None) -> socket.socket | None:
    """The socket under a transport, to send to while the transport holds nothing back; None where the bytes
    would not be the peer's own (TLS), or it is no stream.

    The socket stays the transport's. Whoever asked has to `detach` this object when the connection is lost:
    the descriptor's number may be another connection's right after.
    """
    if transport is None or transport.get_extra_info("sslcontext") is not None:
        return None
    under = transport.get_extra_info("socket")
    if under is None or under.type != socket.SOCK_STREAM:
        return None
    return socket.socket(under.family, under.type, 0, fileno=under.fileno())


class Straight:
    """Of a protocol that knows the way past its transport; it calls `_let_go` when its connection is lost."""

    __slots__ = ()
    transport: asyncio.Transport | None
    _straight: socket.socket | None

    def straight(self) -> socket.socket | None:
        """Where to send past the transport while that holds nothing back; None where that cannot be."""
        if self._straight is None:
            # A slot of the protocol: two bases with slots of their own cannot be put together.
            self._straight = straight_to(self.transport)  # type: ignore[misc]
        return self._straight

    def unread(self) -> bytes:
        """What has come that the transport has not read yet, but for the end of the connection."""
        if self._straight is None:
            return b""
        try:
            return self._straight.recv(MOST_READ)
        except OSError:
            return b""

    def _let_go(self) -> None:
        if self._straight is not None:
            self._straight.detach()


def write(transport: asyncio.WriteTransport, straight: socket.socket | None, data: bytes) -> None:
    """Write at once as much as goes, and let the transport have the rest. Raises `RuntimeError` when it is
    closed."""
    if straight is not None and not transport.get_write_buffer_size():
        try:
            sent = straight.send(data)
        except OSError:
            sent = 0  # It is full, or broken: the transport finds out which.
        if sent == len(data):
            return
        data = data[sent:]
    transport.write(data)
