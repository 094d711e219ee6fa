"""What each caller has had over all workers: the accounts of `fairness`, kept in common memory."""

from collections.abc import Iterable, Mapping

import xxhash

from replicarouter.admission.fairness import Account, Book
from replicarouter.commons.callers import NOBODY
from replicarouter.commons.seat import Seat


class CommonAccount(Account):
    """One caller before the replicas of a book, whichever worker its requests come to."""

    __slots__ = ("_callers",)

    def __init__(self, book: Book, caller: str, weight: float, seat: Seat, place: int) -> None:
        super().__init__(book, caller, weight)
        self._callers = seat.callers
        self.place = place

    @property
    def total(self) -> int:
        """Its outstanding requests there, at all workers."""
        return self.held if self.place < 0 else self._callers.held(self.place)

    @property
    def due(self) -> float:
        """The virtual time at which its next waiting request is due."""
        return self.turn if self.place < 0 else self._callers.turn(self.place)


class CommonBook(Book):
    """The accounts of all callers that compete for the same replicas, over all workers that know the book by
    the same `name`.

    Where the common table has no room left, an account is this worker's alone.
    """

    def __init__(self, shares: Mapping[str, float], seat: Seat, name: str) -> None:
        super().__init__(shares)
        self._seat = seat
        self._name = name
        self.place = seat.book(key_of(name))

    def begin(self, account: Account) -> None:
        """Its caller begins to wait."""
        if account.place < 0:
            super().begin(account)
        else:
            self._seat.begin_waiting(account.place, account.weight)

    def end(self, account: Account) -> None:
        """Its caller waits no more."""
        if account.place < 0:
            super().end(account)
        else:
            self._seat.end_waiting(account.place)

    def charge(self, account: Account) -> None:
        """A request of its caller, which waits, gets its turn."""
        if account.place < 0:
            super().charge(account)
        else:
            self._seat.charge(account.place, account.weight)

    def _make(self, caller: str, weight: float) -> Account:
        place = NOBODY
        if self.place != NOBODY:
            place = self._seat.caller(key_of(f"{self._name}\0{caller}"), self.place)
        return CommonAccount(self, caller, weight, self._seat, place)

    def _close(self, accounts: Iterable[Account]) -> None:
        for account in accounts:
            if account.place >= 0:
                self._seat.forget_caller(account.place)


def key_of(text: str) -> int:
    """A number above 1 for a text: the same one in every process."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) >> 1 | 2
