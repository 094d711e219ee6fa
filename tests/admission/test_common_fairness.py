"""Accounts that several workers keep together."""

from collections.abc import Iterator

import pytest

from replicarouter.admission import fairness
from replicarouter.admission.common_fairness import CommonBook, key_of
from replicarouter.commons import callers
from replicarouter.commons.layout import CALLERS_USED
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


@pytest.fixture
def seats(commons: Commons) -> list[Seat]:
    return [commons.seat(index) for index in range(2)]


def books(seats: list[Seat], name: str = "m1") -> list[CommonBook]:
    return [CommonBook({"gold": 2.0}, seat, name) for seat in seats]


def test_a_caller_has_one_account_before_all_workers(seats: list[Seat]) -> None:
    one, other = (book.account("gold") for book in books(seats))
    seats[0].lease(0, 0, one.place)
    seats[1].lease(0, 0, other.place)

    assert (one.total, other.total, one.weight) == (2, 2, 2.0)
    one.book.begin(one)
    assert one.due == other.due == 0.5
    other.book.charge(other)
    assert one.due == 1.0
    one.book.end(one)
    elsewhere = books(seats, "m2")[0].account("gold")
    assert (elsewhere.total, elsewhere.due) == (0, 0.0)


def test_accounts_that_are_forgotten_leave_the_table(
    commons: Commons, seats: list[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairness, "REMEMBERED", 4)
    book, other = books(seats)
    kept = book.account("kept")
    seats[1].lease(0, 0, other.account("kept").place)
    for number in range(100):
        book.account(f"passer-by {number}")

    assert commons.header[CALLERS_USED] < 10
    assert book.account("kept") is kept, "it holds a request at another worker"


def test_without_room_in_the_table_a_worker_keeps_account_alone(
    seats: list[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MOST_USED", 0)
    book, other = books(seats)
    account = book.account("a")
    account.held += 1
    book.begin(account)
    book.charge(account)

    assert (account.place, account.total, account.due) == (-1, 1, 2.0)
    assert (other.account("a").total, other.account("a").due) == (0, 0.0)
    book.end(account)


def test_a_name_has_the_same_number_everywhere() -> None:
    assert key_of("m1") == key_of("m1") != key_of("m2")
    assert all(1 < key_of(name) < 2**63 for name in ("", "m1", "\ud800"))
