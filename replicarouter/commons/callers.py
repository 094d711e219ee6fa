"""How much each caller has over all workers, whose turn it is, and who competes with whom: fair sharing as
`admission.fairness` describes it, with its numbers in common memory. All is done under the lock."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from replicarouter.commons.layout import (
    BOOK,
    BOOK_COMPETING,
    BOOK_KEY,
    BOOK_NOW,
    BOOK_WAITING,
    BOOKS,
    BOOKS_USED,
    CALLER,
    CALLER_BOOK,
    CALLER_HELD,
    CALLER_KEY,
    CALLER_TURN,
    CALLER_USES,
    CALLER_WAITS,
    CALLER_WEIGHT,
    CALLERS,
    CALLERS_A_PAGE,
    CALLERS_USED,
    OWN_CALLER,
    OWN_HELD,
    OWN_USES,
    OWN_WAITS,
    PAGES,
)

NOBODY = -1
"""The place of a caller, or of a book, that the table has none for: its worker alone keeps account of it."""

MOST_USED = CALLERS * 3 // 4
"""Beyond this, callers would have to be looked for too long."""

_STARTS = (0, *accumulate((CALLERS * CALLER, BOOKS * BOOK, PAGES)))
TABLE = _STARTS[-1]
"""Cells of the whole table."""

_FREE, _GONE = 0, 1
"""Instead of a key: nobody was here, and somebody was but those behind are still to be found."""

_COLUMNS = ((CALLER_HELD, OWN_HELD), (CALLER_WAITS, OWN_WAITS), (CALLER_USES, OWN_USES))


class Callers:
    """A table of callers, found by their key, and one of the books they stand in."""

    def __init__(
        self, cells: "memoryview[int]", floats: "memoryview[float]", header: "memoryview[int]"
    ) -> None:
        self.cells, self.floats = cells[: _STARTS[1]], floats[: _STARTS[1]]
        books = slice(_STARTS[1], _STARTS[2])
        self.books, self.book_floats = cells[books], floats[books]
        self._pages = cells[_STARTS[2] :]
        self._header = header

    def open_book(self, key: int) -> int:
        """The place of the book with this key (positive), opened if need be; `NOBODY`: all are taken."""
        used = self._header[BOOKS_USED]
        for index in range(used):
            if self.books[index * BOOK + BOOK_KEY] == key:
                return index
        if used == BOOKS:
            return NOBODY
        self.books[used * BOOK + BOOK_KEY] = key
        self._header[BOOKS_USED] = used + 1
        return used

    def find(self, key: int) -> tuple[int, bool]:
        """The place of the caller with this key (above 1) and whether it is there; else where it can be put,
        `NOBODY` for nowhere."""
        cells, free = self.cells, NOBODY
        index = key % CALLERS
        for _ in range(CALLERS):
            found = cells[index * CALLER + CALLER_KEY]
            if found == key:
                return index, True
            if found <= _GONE and free == NOBODY:
                free = index
            if found == _FREE:
                break
            index = (index + 1) % CALLERS
        return (free if self._header[CALLERS_USED] < MOST_USED else NOBODY), False

    def put(self, index: int, key: int, book: int) -> None:
        """Let a caller begin at this place."""
        at = index * CALLER
        self.floats[at + CALLER_TURN] = 0.0
        self.cells[at + CALLER_BOOK] = book
        self.cells[at + CALLER_KEY] = key
        self._pages[index // CALLERS_A_PAGE] = 1
        self._header[CALLERS_USED] += 1

    def take_out(self, index: int) -> None:
        """Nobody has anything to do with this caller any more."""
        cells = self.cells
        last = cells[(index + 1) % CALLERS * CALLER + CALLER_KEY] == _FREE
        cells[index * CALLER + CALLER_KEY] = _FREE if last else _GONE
        self._header[CALLERS_USED] -= 1

    def clear(self, own: "memoryview[int]") -> None:
        """A worker has died: its `own` cells are zero from now on."""
        for page in self._used_pages():
            begin = page * CALLERS_A_PAGE * OWN_CALLER
            for cell in range(begin, begin + CALLERS_A_PAGE * OWN_CALLER):
                own[cell] = 0

    def add_up(self, owns: "Sequence[memoryview[int]]") -> None:
        """Make sums anew from the own cells of all workers, and forget who is nobody's caller any more."""
        cells, books = self.cells, range(self._header[BOOKS_USED])
        competing, waiting = [0.0 for _ in books], [0 for _ in books]
        used = 0
        for index in self._used():
            at, own_at = index * CALLER, index * OWN_CALLER
            for column, own_column in _COLUMNS:
                cells[at + column] = sum([own[own_at + own_column] for own in owns])
            used += 1
            if not cells[at + CALLER_USES]:
                self._header[CALLERS_USED] = used
                self.take_out(index)
                used -= 1
            elif cells[at + CALLER_WAITS]:
                competing[cells[at + CALLER_BOOK]] += self.floats[at + CALLER_WEIGHT]
                waiting[cells[at + CALLER_BOOK]] += 1
        self._header[CALLERS_USED] = used
        for book in books:
            self.book_floats[book * BOOK + BOOK_COMPETING] = competing[book]
            self.books[book * BOOK + BOOK_WAITING] = waiting[book]

    def _used_pages(self) -> list[int]:
        return [page for page, used in enumerate(self._pages.tolist()) if used]

    def _used(self) -> Iterator[int]:
        for page in self._used_pages():
            for index in range(page * CALLERS_A_PAGE, (page + 1) * CALLERS_A_PAGE):
                if self.cells[index * CALLER + CALLER_KEY] > _GONE:
                    yield index


class OwnCallers:
    """The callers of one worker; `own` are its cells. What writes is to be called under the lock."""

    __slots__ = ("_table", "cells", "floats", "own")

    def __init__(self, table: Callers, own: "memoryview[int]") -> None:
        self._table = table
        self.cells, self.floats = table.cells, table.floats
        self.own = own

    def held(self, index: int) -> int:
        """What a caller holds over all workers."""
        return self.cells[index * CALLER + CALLER_HELD]

    def turn(self, index: int) -> float:
        """When its next waiting request is due, in virtual time."""
        return self.floats[index * CALLER + CALLER_TURN]

    def open_book(self, key: int) -> int:
        """The place of a book; `NOBODY` when there is no room for it."""
        return self._table.open_book(key)

    def open(self, key: int, book: int) -> int:
        """The place of a caller from now on, until `close`; `NOBODY` when there is no room for it."""
        table = self._table
        index, there = table.find(key)
        if index == NOBODY:
            return NOBODY
        if not there:
            table.put(index, key, book)
        self.own[index * OWN_CALLER + OWN_USES] += 1
        self.cells[index * CALLER + CALLER_USES] += 1
        return index

    def close(self, index: int) -> None:
        """It has no request here, and its place is needed no more."""
        self.own[index * OWN_CALLER + OWN_USES] -= 1
        self.cells[index * CALLER + CALLER_USES] -= 1
        if not self.cells[index * CALLER + CALLER_USES]:
            self._table.take_out(index)

    def begin(self, index: int, weight: float) -> None:
        """It begins to wait here. Where it waits elsewhere already, its turn stands."""
        at, own_at = index * CALLER, index * OWN_CALLER
        if self.own[own_at + OWN_WAITS]:
            return
        self.own[own_at + OWN_WAITS] = 1
        self.cells[at + CALLER_WAITS] += 1
        if self.cells[at + CALLER_WAITS] > 1:
            return
        floats, books, table = self.floats, self._table.book_floats, self._table
        book = self.cells[at + CALLER_BOOK] * BOOK
        cost = 1.0 / weight if self.cells[at + CALLER_HELD] else 0.0
        floats[at + CALLER_TURN] = max(floats[at + CALLER_TURN], books[book + BOOK_NOW] + cost)
        floats[at + CALLER_WEIGHT] = weight
        books[book + BOOK_COMPETING] += weight
        table.books[book + BOOK_WAITING] += 1

    def end(self, index: int) -> None:
        """It waits here no more."""
        at, own_at = index * CALLER, index * OWN_CALLER
        if not self.own[own_at + OWN_WAITS]:
            return
        self.own[own_at + OWN_WAITS] = 0
        self.cells[at + CALLER_WAITS] -= 1
        if self.cells[at + CALLER_WAITS]:
            return
        table = self._table
        book = self.cells[at + CALLER_BOOK] * BOOK
        table.books[book + BOOK_WAITING] -= 1
        # What rounding leaves does not add up over more than one time of waiting.
        left = table.book_floats[book + BOOK_COMPETING] - self.floats[at + CALLER_WEIGHT]
        table.book_floats[book + BOOK_COMPETING] = left if table.books[book + BOOK_WAITING] else 0.0

    def charge(self, index: int, weight: float) -> None:
        """A request of its, which waited, gets its turn."""
        at = index * CALLER
        book, books = self.cells[at + CALLER_BOOK] * BOOK, self._table.book_floats
        self.floats[at + CALLER_TURN] += 1.0 / weight
        books[book + BOOK_NOW] += 1.0 / max(books[book + BOOK_COMPETING], weight)
