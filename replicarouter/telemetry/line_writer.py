"""Writes lines to a descriptor from a thread of its own: a reader that is slow, or stuck, holds up nobody."""

import os
import select
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

ROOM = 4 * 2**20
"""Bytes that may wait before lines that can be spared are dropped; the others have twice as much."""

PIECE = 65536
"""Bytes joined for one write."""

PAUSE = 0.02
"""Seconds after all is written: lines that come meanwhile are written together, and wake nobody."""


class LineWriter:
    """Writes what it is given, in its order. `dropped` counts the lines that found no room.

    `put` is for one thread at a time. A reader that has gone is no error: what is left is dropped.
    """

    def __init__(self, descriptor: int, *, room: int = ROOM) -> None:
        self._descriptor = descriptor
        self._room = room
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._put = 0
        self._written = 0
        self._gone = False
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return self._put - self._written

    @property
    def relaxed(self) -> bool:
        """Whether there is plenty of room."""
        return not self._gone and self.waiting < self._room // 2

    def put(self, line: bytes, *, spare: bool) -> bool:
        """Have `line` written; False when it was dropped, which comes sooner to one that can be spared."""
        if self.waiting + len(line) > (self._room if spare else 2 * self._room) or self._gone:
            self.dropped += 1
            return False
        self._put += len(line)
        self._lines.put(line)
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, at most so long; whether it is."""
        end = time.monotonic() + seconds
        self._hurry.set()
        while self.waiting and not self._gone and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.001)
        self._hurry.clear()
        return not self.waiting

    def _run(self) -> None:
        try:
            while True:
                piece = self._next_piece()
                self._write(piece)
                self._written += len(piece)
                if self._lines.empty():
                    self._hurry.wait(PAUSE)
        except OSError:
            self._gone = True

    def _next_piece(self) -> bytes:
        """The lines that wait, as many as go into one write."""
        lines = [self._lines.get()]
        size = len(lines[0])
        with suppress(Empty):
            while size < PIECE:
                lines.append(self._lines.get_nowait())
                size += len(lines[-1])
        return b"".join(lines)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Somebody who shares the descriptor has made it so.
                select.select((), (self._descriptor,), ())
