"""The accounts of callers: what a turn costs, when it comes, and whose account is forgotten."""

import pytest

from replicarouter.admission.fairness import REMEMBERED, Account, Book
from replicarouter.admission.queue import Lane, Line


def waits(account: Account) -> None:
    """Let it count as one who waits."""
    account.book.begin(account)
    account.lines["m1", 0, None] = Line(account, Lane(0, account.weight))


def test_an_account_is_kept_by_name_and_weighs_what_the_shares_say(book: Book) -> None:
    assert book.account("double") is book.account("double")
    assert (book.account("double").weight, book.account("somebody").weight) == (2.0, 1.0)


@pytest.mark.parametrize(("caller", "cost"), [("a", 1.0), ("double", 0.5), ("tenth", 10.0)])
def test_a_turn_costs_less_the_more_one_weighs(book: Book, caller: str, cost: float) -> None:
    account = book.account(caller)
    waits(account)
    book.charge(account)

    assert account.turn == pytest.approx(cost)


def test_time_moves_on_by_what_all_who_wait_were_due(book: Book) -> None:
    for caller in ("a", "b", "double"):
        waits(book.account(caller))
    book.charge(book.account("a"))
    assert book.now == pytest.approx(1 / 4)

    book.end(book.account("double"))
    book.charge(book.account("a"))
    assert book.now == pytest.approx(1 / 4 + 1 / 2)


def test_who_waits_alone_is_never_ahead_of_time(book: Book) -> None:
    account = book.account("double")
    waits(account)
    for _ in range(10):
        book.charge(account)

    assert account.turn == pytest.approx(book.now)


def test_nobody_saves_up_turns_while_away(book: Book) -> None:
    busy, away = book.account("a"), book.account("b")
    waits(busy)
    for _ in range(10):
        book.charge(busy)
    waits(away)

    assert away.turn == busy.turn == book.now


@pytest.mark.parametrize(("caller", "turn"), [("a", 1.0), ("double", 0.5)])
def test_who_holds_requests_already_has_had_its_first_turn(book: Book, caller: str, turn: float) -> None:
    account = book.account(caller)
    account.held = 3
    book.begin(account)

    assert account.turn == turn


def test_nobody_loses_a_debt_by_leaving_for_a_moment(book: Book) -> None:
    for caller in ("a", "tenth"):
        waits(book.account(caller))
    account = book.account("tenth")
    book.charge(account)
    book.end(account)
    book.begin(account)

    assert account.turn == pytest.approx(10.0)


def test_rounding_never_stops_the_clock() -> None:
    book = Book({"huge": 1e18, "tiny": 1e-9})
    for caller in ("tiny", "huge"):
        waits(book.account(caller))
    book.end(book.account("huge"))
    book.charge(book.account("tiny"))

    assert book.now == pytest.approx(1e9)


def test_idle_callers_are_forgotten_and_no_others(book: Book) -> None:
    waiting, holding = book.account("waiting"), book.account("holding")
    waits(waiting)
    holding.held = 1
    for number in range(10 * REMEMBERED):
        book.account(f"passer-by {number}")

    assert book.size <= REMEMBERED
    assert book.account("waiting") is waiting
    assert book.account("holding") is holding


def test_callers_with_requests_are_kept_however_many(book: Book) -> None:
    accounts = []
    for number in range(3 * REMEMBERED):
        accounts.append(book.account(f"caller {number}"))
        accounts[-1].held = 1
    for number in range(10 * REMEMBERED):
        book.account(f"passer-by {number}")

    assert book.size <= 2 * len(accounts)
    assert all(book.account(account.caller) is account for account in accounts)


def test_new_shares_are_taken_over(book: Book) -> None:
    old, other = book.account("double"), book.account("a")
    book.reweigh({"a": 5.0, "new": 7.0})

    assert (old.weight, other.weight, book.account("new").weight) == (1.0, 5.0, 7.0)
