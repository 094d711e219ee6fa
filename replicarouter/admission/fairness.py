"""What each caller has had, and whose turn it is: weighted fair sharing of replicas between callers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicarouter.admission.queue import Line, Place

DEFAULT_WEIGHT = 1.0

REMEMBERED = 1024
"""Accounts of a book that are kept without a look at whether their callers still have requests."""


class Account:
    """One caller before the replicas of a book.

    `held` counts its outstanding requests there; `turn` is the virtual time at which its next waiting
    request is due; `lines` are those in which it waits, by their places. `place` is that in common memory,
    if it has one there: then `total` and `due` are to be believed, and not what is kept here.
    """

    __slots__ = ("book", "caller", "held", "lines", "place", "turn", "weight")

    def __init__(self, book: "Book", caller: str, weight: float) -> None:
        self.book = book
        self.caller = caller
        self.weight = weight
        self.held = 0
        self.turn = 0.0
        self.place = -1
        self.lines: dict[Place, Line] = {}

    @property
    def total(self) -> int:
        """Its outstanding requests there."""
        return self.held

    @property
    def due(self) -> float:
        """When its next waiting request is due."""
        return self.turn


class Book:
    """The accounts of all callers that compete for the same replicas.

    The clock is that of fair queueing (A. Demers, S. Keshav, S. Shenker, "Analysis and simulation of a
    fair queueing algorithm", 1989), ordered by the start of a turn (P. Goyal, H. Vin, H. Cheng,
    "Start-time fair queueing", 1996): each grant out of the queue costs its caller 1 / weight of
    virtual time, and moves `now` on by what the callers who wait were due for it. Who begins to wait
    has its turn now at the earliest, so that nobody saves up turns, and one turn later if it holds
    requests already. Grants while nobody waits cost nothing else.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.now = 0.0
        self.place = -1
        self._shares = shares
        self._accounts: dict[str, Account] = {}
        self._competing = 0.0
        self._waiting = 0
        self._look_at = REMEMBERED

    @property
    def size(self) -> int:
        """How many accounts are kept."""
        return len(self._accounts)

    def account(self, caller: str) -> Account:
        """The account of a caller, opened when there is none."""
        account = self._accounts.get(caller)
        return account if account is not None else self._open(caller)

    def begin(self, account: Account) -> None:
        """Its caller begins to wait."""
        cost = 1.0 / account.weight if account.held else 0.0
        account.turn = max(account.turn, self.now + cost)
        self._competing += account.weight
        self._waiting += 1

    def end(self, account: Account) -> None:
        """Its caller waits no more."""
        self._waiting -= 1
        # What rounding leaves does not add up over more than one time of waiting.
        self._competing = self._competing - account.weight if self._waiting else 0.0

    def charge(self, account: Account) -> None:
        """A request of its caller, which waits, gets its turn."""
        account.turn += 1.0 / account.weight
        # Its own weight is part of the sum, whatever rounding has made of that.
        self.now += 1.0 / max(self._competing, account.weight)

    def reweigh(self, shares: Mapping[str, float]) -> None:
        """Give the callers other weights. Nobody may wait meanwhile."""
        self._shares = shares
        for account in self._accounts.values():
            account.weight = shares.get(account.caller, DEFAULT_WEIGHT)

    def _open(self, caller: str) -> Account:
        if len(self._accounts) >= self._look_at:
            self._forget_idle()
        weight = self._shares.get(caller, DEFAULT_WEIGHT)
        account = self._accounts[caller] = self._make(caller, weight)
        return account

    def _make(self, caller: str, weight: float) -> Account:
        return Account(self, caller, weight)

    def _close(self, accounts: Iterable[Account]) -> None:
        """These are forgotten."""

    def _forget_idle(self) -> None:
        """Forget callers without requests; the worst they can gain by it is one turn."""
        kept = {name: one for name, one in self._accounts.items() if one.held or one.total or one.lines}
        self._close([one for name, one in self._accounts.items() if name not in kept])
        self._accounts = kept
        # Only once as many more have come, so that each look is paid for by those it looks at.
        self._look_at = max(REMEMBERED, 2 * len(kept))
