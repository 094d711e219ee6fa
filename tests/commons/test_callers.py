"""Callers over all workers: what they hold, whose turn it is, and who is forgotten."""

import pytest

from replicarouter.commons import callers
from replicarouter.commons.callers import NOBODY, OwnCallers
from replicarouter.commons.layout import (
    BOOK,
    BOOK_COMPETING,
    BOOK_WAITING,
    BOOKS,
    CALLERS,
    CALLERS_USED,
)
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat

BOOK_NAME, KEY = 5, 1000


@pytest.fixture
def seats(commons: Commons) -> list[Seat]:
    return [commons.seat(index) for index in range(2)]


def waiting(commons: Commons, book: int) -> tuple[int, float]:
    table = commons.callers
    return table.books[book * BOOK + BOOK_WAITING], table.book_floats[book * BOOK + BOOK_COMPETING]


def test_all_workers_find_the_same_book_and_the_same_caller(seats: list[Seat]) -> None:
    books = [seat.book(BOOK_NAME) for seat in seats]
    places = [seat.caller(KEY, book) for seat, book in zip(seats, books, strict=True)]

    assert len(set(books)) == len(set(places)) == 1
    assert seats[0].book(BOOK_NAME + 1) != books[0]
    assert seats[0].caller(KEY + 1, books[0]) != places[0]


def test_callers_whose_keys_meet_are_kept_apart(commons: Commons, seats: list[Seat]) -> None:
    one, book = seats[0], seats[0].book(BOOK_NAME)
    keys = [KEY + number * CALLERS for number in range(4)]
    places = [one.caller(key, book) for key in keys]
    assert len(set(places)) == 4
    one.forget_caller(places[1])

    assert [one.caller(keys[index], book) for index in (0, 2, 3)] == [places[index] for index in (0, 2, 3)]
    assert one.caller(KEY + 9 * CALLERS, book) == places[1]


def test_what_a_caller_holds_is_counted_over_workers(seats: list[Seat]) -> None:
    one, other = seats
    place = one.caller(KEY, one.book(BOOK_NAME))
    assert other.caller(KEY, one.book(BOOK_NAME)) == place
    assert one.lease(0, 0, place)
    assert other.lease(0, 0, place)
    assert one.callers.held(place) == 2
    one.end(0, place)

    assert other.callers.held(place) == 1
    assert other.lease(0, 1, place) is False
    assert other.callers.held(place) == 1


def test_a_caller_that_waits_at_two_workers_competes_once(commons: Commons, seats: list[Seat]) -> None:
    one, other = seats
    book = one.book(BOOK_NAME)
    place = one.caller(KEY, book)
    other.caller(KEY, book)
    for seat in (one, one, other):
        seat.begin_waiting(place, 2.0)
    assert waiting(commons, book) == (1, 2.0)
    one.end_waiting(place)
    one.end_waiting(place)
    assert waiting(commons, book) == (1, 2.0)
    other.end_waiting(place)
    assert waiting(commons, book) == (0, 0.0)


def test_turns_are_the_same_as_those_of_one_process(seats: list[Seat]) -> None:
    one, other = seats
    book = one.book(BOOK_NAME)
    holds, waits = one.caller(KEY, book), other.caller(KEY + 1, book)
    one.lease(0, 0, holds)
    one.begin_waiting(holds, 2.0)
    other.begin_waiting(waits, 1.0)
    assert (one.callers.turn(holds), one.callers.turn(waits)) == (0.5, 0.0)
    other.charge(waits, 1.0)
    assert one.callers.turn(waits) == 1.0
    # Both wait, with three of weight together, so that the clock has moved on by a third.
    late = one.caller(KEY + 2, book)
    one.begin_waiting(late, 1.0)
    assert one.callers.turn(late) == pytest.approx(1 / 3)


def test_who_is_needed_by_nobody_is_forgotten(commons: Commons, seats: list[Seat]) -> None:
    one, other = seats
    book = one.book(BOOK_NAME)
    place = one.caller(KEY, book)
    other.caller(KEY, book)
    one.forget_caller(place)
    assert commons.header[CALLERS_USED] == 1
    other.forget_caller(place)
    assert commons.header[CALLERS_USED] == 0


def test_the_dead_hold_nothing_and_wait_for_nothing(commons: Commons, seats: list[Seat]) -> None:
    one, other = seats
    book = one.book(BOOK_NAME)
    both, lone = one.caller(KEY, book), one.caller(KEY + 1, book)
    other.caller(KEY, book)
    for seat in (one, other):
        seat.lease(0, 0, both)
        seat.begin_waiting(both, 1.0)
    one.lease(0, 0, lone)
    one.begin_waiting(lone, 4.0)
    commons.vacate(0)

    assert other.callers.held(both) == 1
    assert waiting(commons, book) == (1, 1.0)
    assert commons.header[CALLERS_USED] == 1
    fresh = other.caller(KEY + 1, book)
    assert (other.callers.held(fresh), other.callers.turn(fresh)) == (0, 0.0)


def test_where_there_is_no_room_a_caller_has_no_place(
    seats: list[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MOST_USED", 2)
    one, book = seats[0], seats[0].book(BOOK_NAME)
    places = [one.caller(KEY + number, book) for number in range(3)]

    assert places[2] == NOBODY
    assert one.caller(KEY, book) == places[0]
    one.forget_caller(places[0])
    one.forget_caller(places[0])
    assert one.caller(KEY + 2, book) != NOBODY


def test_there_are_so_many_books_and_no_more(commons: Commons) -> None:
    own = OwnCallers(commons.callers, commons.seats[0].callers)
    places = [own.open_book(key + 2) for key in range(BOOKS + 1)]

    assert places == [*range(BOOKS), NOBODY]
