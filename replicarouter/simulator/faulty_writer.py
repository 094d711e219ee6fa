"""Writes an answer until a scripted fault strikes. No sockets: the connection does the violence."""

from collections.abc import Callable
from typing import Protocol

from replicarouter.simulator.faults import Fault

_HEAD_END = b"\r\n\r\n"
_MALFORMED_HEAD = b"HTTP/1.1 abc Nonsense\r\nno colon here\r\n\r\n"
_MALFORMED_CHUNK = b"xyz\r\nnot a chunk\r\n"


class Victim(Protocol):
    """A connection, as a fault meets it."""

    def fall_silent(self) -> None:
        """Write nothing more, and stay open."""

    def reset(self) -> None:
        """RST, at once."""

    def hang_up(self) -> None:
        """FIN after what has been written, whatever is missing."""


class FaultyWriter:
    """Takes the writes of one answer in place of `write`: its head first, then a chunk each time, or all
    of a whole answer at once, of which half a body counts as any number of chunks."""

    def __init__(self, fault: Fault, victim: Victim, write: Callable[[bytes], None]) -> None:
        self._fault = fault
        self._victim = victim
        self._write = write
        self._chunks = -1  # the head is on its way
        self._over = False

    def __call__(self, data: bytes) -> None:
        """Write what comes before the fault, and let it strike when its place is reached."""
        if self._over:
            return
        at = self._fault.at
        if self._chunks >= 0:
            self._write(data)
            self._chunks += 1
        elif at == "head":
            self._strike_head(data)
        else:
            self._begin(data, at)
        if self._chunks == at:
            self._strike()

    def _begin(self, data: bytes, at: object) -> None:
        """Write the head, and of a whole answer that is to be cut the first half."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        self._chunks = 0
        self._write(data[:end])
        if end < len(data) and at != 0:
            self._write(data[end : (end + len(data)) // 2])
            self._strike()

    def _strike_head(self, data: bytes) -> None:
        end = data.find(_HEAD_END)
        if self._fault.kind == "garbage":
            self._write(_MALFORMED_HEAD)
        else:
            self._write(data[: end // 2])
        self._strike()

    def _strike(self) -> None:
        if self._over:
            return
        self._over = True
        match self._fault.kind:
            case "reset":
                self._victim.reset()
            case "hang":
                self._victim.fall_silent()
            case "garbage" if self._fault.at != "head":
                self._write(_MALFORMED_CHUNK)
                self._victim.hang_up()
            case _:
                self._victim.hang_up()
