"""The first waiters of all workers: what is told of them, and whose turn it is."""

from typing import Any

import pytest

from replicarouter.commons import heads
from replicarouter.commons.callers import NOBODY
from replicarouter.commons.heads import Head, first_of
from replicarouter.commons.layout import ANY, MOST_TRIED
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat

MODEL = 77


def a_head(since: float = 1.0, **fields: Any) -> Head:
    plain = Head(MODEL, 0, ANY, NOBODY, 0, 0, 1.0, 0.0, since, (), 0)
    return plain._replace(**fields)


def first(commons: Commons, *some: Head) -> Head | None:
    return first_of(some, commons.callers.cells, commons.callers.floats)


def test_what_is_told_is_read_as_it_was(commons: Commons) -> None:
    some = [a_head(2.5, rank=3, only=8, held=4, weight=2.5, turn=1.25, tried=(16, 24)), a_head()]
    heads.write(commons.seats[0], some)
    assert list(heads.read(commons.seats[0])) == some
    heads.write(commons.seats[0], some[1:])
    assert list(heads.read(commons.seats[0])) == some[1:]


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"only": 8}, True),
        ({"only": 16}, False),
        ({"tried": (8,)}, False),
        ({"tried": (0,)}, True),
    ],
)
def test_who_may_use_a_replica(fields: dict[str, Any], may: bool) -> None:
    assert a_head(**fields).may_use(8) is may


@pytest.mark.parametrize(
    ("due", "other"),
    [
        ({"since": 1.0}, {"since": 2.0}),
        ({"since": 2.0, "rank": 0}, {"since": 1.0, "rank": 1}),
        ({"since": 2.0, "held": 1}, {"since": 1.0, "held": 3}),
        ({"since": 2.0, "turn": 1.0}, {"since": 1.0, "turn": 2.0}),
        ({"since": 2.0, "held": 2, "weight": 3.0}, {"since": 1.0, "held": 1, "weight": 1.0}),
        ({"since": 1.0, "held": 9}, {"since": 2.0, "held": 0, "book": 1}),
    ],
)
def test_whose_turn_it_is(commons: Commons, due: dict[str, Any], other: dict[str, Any]) -> None:
    one, two = a_head(**due), a_head(**other)

    assert first(commons, one, two) == one
    assert first(commons, two, one) == one


def test_nobody_is_first_of_nobody(commons: Commons) -> None:
    assert first(commons) is None


def test_what_a_caller_holds_is_looked_up_when_it_matters(commons: Commons) -> None:
    seat: Seat = commons.seat(0)
    book = seat.book(3)
    one, other = seat.caller(100, book), seat.caller(101, book)
    seat.lease(0, 0, one)
    told = [a_head(1.0, caller=one), a_head(2.0, caller=other)]
    found = first(commons, *told)
    assert found is not None
    assert found.caller == other
    seat.lease(0, 0, other)
    seat.lease(0, 0, other)
    found = first(commons, *told)
    assert found is not None
    assert found.caller == one


def test_who_declines_is_asked_no_more(commons: Commons) -> None:
    seat = commons.seat(0)
    full = tuple(range(100, 100 + MOST_TRIED))
    seat.tell_heads([a_head(), a_head(model=78), a_head(only=16), a_head(tried=full)])
    seat.decline({MODEL}, 8)

    assert [head.model for head in seat.heads_for({MODEL, 78}, 8)] == [78]
    assert [head.only for head in seat.heads_for({MODEL}, 16)] == [ANY, 16]
    assert seat.heads_for({MODEL}, 16, but=(0,)) == []


def test_newcomers_see_who_waits_elsewhere(commons: Commons) -> None:
    one, other = commons.seat(0), commons.seat(1)
    one.tell_heads([a_head()])

    assert (other.others_wait(MODEL), other.others_wait(MODEL + 1)) == (True, False)
    assert not one.others_wait(MODEL)
