"""The beginning of an upload, kept so that it can be sent (again): in memory while small, else on disk."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

from replicarouter.errors import Overloaded
from replicarouter.proxy.memory import BodyMemory

IN_MEMORY = 8 * 2**20
"""Bytes above which an upload goes to disk."""

PIECE = 131072
"""Bytes that are read from disk in one go."""

Result = TypeVar("Result")


class Spool:
    """Bytes in the order of their arrival. On disk they have no name, so that nothing is left behind when
    the process dies; all work with the disk is done in threads."""

    __slots__ = ("_file", "_memory", "_parts", "_working", "size")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._parts: list[bytes] = []
        self._file: BinaryIO | None = None
        self._working: asyncio.Future[Any] | None = None
        self.size = 0

    @property
    def on_disk(self) -> bool:
        """Whether it was too large for memory."""
        return self._file is not None

    def remember(self, data: bytes) -> bool:
        """Keep `data` in memory; False if there is no room, and then it is not kept."""
        if not self._memory.take(len(data)):
            return False
        self._parts.append(data)
        self.size += len(data)
        return True

    def begin(self, data: bytes, held: int) -> None:
        """Start with `data`, for which `held` bytes of memory were taken already."""
        self._parts, self.size = [data], held

    def lend(self) -> None:
        """What is kept in memory gives way to who needs the room, until it is `reclaim`ed or dropped."""
        if self._parts:
            self._memory.lend(self)

    def reclaim(self) -> None:
        """What is still kept is needed from now on."""
        self._memory.reclaim(self)

    def spare(self, data: bytes) -> bool:
        """Keep `data` in memory while there is room that nobody needs; False if it is not kept."""
        if not self._memory.take_spare(len(data)):
            return False
        self._parts.append(data)
        self.size += len(data)
        return True

    def give_way(self) -> None:
        """Let go of what is in memory."""
        self._forget_parts()

    async def add(self, data: bytes) -> None:
        """Keep `data`, wherever there is room; raises `Overloaded` when the disk has none either."""
        if self._file is None:
            if self.size + len(data) <= IN_MEMORY and self.remember(data):
                return
            self._file = _nameless_file()
            data = b"".join([*self._parts, data])
            self._forget_parts()
        self.size += len(data)
        await self._in_thread(_append, self._file, data)

    async def piece(self, number: int) -> bytes:
        """One part of what is kept, counted from 0; nothing behind the last. Raises `Overloaded` when the
        disk fails."""
        if self._file is None:
            return self._parts[number] if number < len(self._parts) else b""
        start = number * PIECE
        if start >= self.size:
            return b""
        return await self._in_thread(_read, self._file, start, min(PIECE, self.size - start))

    def drop(self) -> None:
        """Let go of everything."""
        self._memory.reclaim(self)
        self._forget_parts()
        self.size = 0
        file, self._file = self._file, None
        if file is None:
            return
        # A thread may still be at it, and to give a large file back takes the kernel a while.
        asyncio.get_running_loop().run_in_executor(None, _close, file)

    def _forget_parts(self) -> None:
        held = sum(map(len, self._parts))
        self._parts = []
        self.size -= held
        self._memory.give_back(held)

    async def _in_thread(self, work: Callable[..., Result], *args: object) -> Result:
        """One piece of work after the other, also when nobody waits for the one before any more."""
        if self._working is not None and not self._working.done():
            await asyncio.wait([self._working])
        working = asyncio.get_running_loop().run_in_executor(None, lambda: work(*args))
        self._working = working
        try:
            return await asyncio.shield(working)
        except OSError as error:
            raise _no_room() from error


def _nameless_file() -> BinaryIO:
    try:
        return tempfile.TemporaryFile()  # `drop` closes it
    except OSError as error:
        raise _no_room() from error


def _append(file: BinaryIO, data: bytes) -> None:
    file.seek(0, os.SEEK_END)
    file.write(data)
    file.flush()


def _read(file: BinaryIO, start: int, count: int) -> bytes:
    file.seek(start)
    data = file.read(count)
    if len(data) < count:
        raise OSError("an earlier write has failed")
    return data


def _close(file: BinaryIO) -> None:
    # What could not be written before cannot be written now either, and nobody wants it.
    with suppress(OSError):
        file.close()


def _no_room() -> Overloaded:
    return Overloaded("The router has no room on its disk for this upload; try again shortly.")
