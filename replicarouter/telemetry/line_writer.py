"""Writes lines to a descriptor from a thread of its own: a reader that is slow, or stuck, holds up nobody,
and a disk that is full costs the lines of that time and no others."""

import errno
import os
import select
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from queue import Empty, SimpleQueue

ROOM = 4 * 2**20
"""Bytes that may wait before lines that can be spared are dropped; the others have twice as much."""

PIECE = 65536
"""Bytes joined for one write."""

PAUSE = 0.02
"""Seconds after all is written: lines that come meanwhile are written together, and wake nobody."""

RETRY = 1.0
"""Seconds after a write that failed, before the next is tried."""

FINAL = frozenset((errno.EBADF, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE, errno.ESHUTDOWN))
"""Errors after which nobody can read again; after any other the next write may succeed."""


_NEWLINE = b"\n"

_Piece = tuple[bytes, int, int]
"""Whole lines, how many, and of how many dropped lines they tell."""


class LineWriter:
    """Writes what it is given, in its order.

    `put` is for one thread at a time. What cannot be written is no error: it is dropped, and counted.
    """

    def __init__(self, descriptor: int, *, room: int = ROOM) -> None:
        self._descriptor = descriptor
        self._room = room
        self._pieces: SimpleQueue[_Piece] = SimpleQueue()
        # Each is changed by one thread only: the first three where lines are put, the others where they are
        # written.
        self._put = 0
        self._refused = 0
        self._told = 0
        self._written = 0
        self._lost = 0
        self._told_in_vain = 0
        self._torn = False
        self._gone = False
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that found no room, or could not be written; those that told of others are not counted."""
        return self._refused + self._lost

    @property
    def untold(self) -> int:
        """Dropped lines of which no line tells that was written, or waits to be."""
        return self._refused + self._lost + self._told_in_vain - self._told

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return self._put - self._written

    @property
    def relaxed(self) -> bool:
        """Whether there is plenty of room."""
        return not self._gone and self.waiting < self._room // 2

    def put(self, text: bytes, *, spare: bool, tells: int = 0, lines: int = 1) -> bool:
        """Have so many whole lines written, which tell of so many dropped ones; False when they were dropped
        themselves, which comes sooner to what can be spared. A line of several rows is to come alone."""
        size = len(text)
        waiting = self._put - self._written
        if waiting + size > (self._room if spare else 2 * self._room) or self._gone:
            self._refused += 0 if tells else lines
            return False
        self._told += tells
        self._put += size
        self._pieces.put((text, lines, tells))
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is left to write, at most so long; whether nothing is."""
        end = time.monotonic() + seconds
        self._hurry.set()
        while self.waiting and not self._gone and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.001)
        self._hurry.clear()
        return not self.waiting

    def _run(self) -> None:
        while True:
            pieces = self._next_pieces()
            taken = self._write(pieces)
            self._written += sum(len(text) for text, _, _ in pieces)
            if taken:
                if self._pieces.empty():
                    self._hurry.wait(PAUSE)
            elif not self._gone:
                self._hurry.wait(RETRY)

    def _next_pieces(self) -> list[_Piece]:
        """What waits, as much as goes into one write."""
        pieces = [self._pieces.get()]
        size = len(pieces[0][0])
        with suppress(Empty):
            while size < PIECE:
                pieces.append(self._pieces.get_nowait())
                size += len(pieces[-1][0])
        return pieces

    def _write(self, pieces: Sequence[_Piece]) -> bool:
        """Write them all; False when some were dropped."""
        # The rest of a line that was cut is lost: it must not be taken for the beginning of the next.
        mend = _NEWLINE if self._torn else b""
        data = mend + b"".join([text for text, _, _ in pieces])
        done = 0 if self._gone else self._write_bytes(data)
        if done == len(data):
            self._torn = False
            return True
        if done:
            self._torn = not data.endswith(_NEWLINE, 0, done)
        begins = accumulate((len(text) for text, _, _ in pieces), initial=len(mend))
        for (text, lines, tells), begin in zip(pieces, begins, strict=False):
            if begin + len(text) <= done:
                continue
            self._told_in_vain += tells
            if not tells:
                written = text.count(_NEWLINE, 0, max(done - begin, 0)) if lines > 1 else 0
                self._lost += lines - written
        return False

    def _write_bytes(self, data: bytes) -> int:
        """How many of them were written before an error."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Somebody who shares the descriptor has made it so.
                waits = select.poll()
                waits.register(self._descriptor, select.POLLOUT)
                waits.poll()
            except OSError as error:
                self._gone = error.errno in FINAL
                break
        return len(data) - len(left)
