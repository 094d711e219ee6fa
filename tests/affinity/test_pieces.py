"""The pieces of a canonical text, and what they may cost together."""

from typing import Any

import pytest
from hypothesis import given

from replicarouter.affinity.pieces import MEDIA_CHARACTERS, MOST_COST, PIECE_COST, Pieces, opaque_text
from replicarouter.protocol.json_values import Opaque
from tests.affinity.bodies import VALUES
from tests.properties import examples


def dumped(value: Any) -> bytes:
    return Pieces().dumped(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_they_are_one_text() -> None:
    pieces = Pieces()
    for text in ("a", "\ud800", "ü", ""):
        pieces.add(text)
    assert pieces.encoded() == b"a\xed\xa0\x80\xc3\xbc"


@pytest.mark.parametrize("text", ["", "a" * 1000])
def test_a_text_is_full_after_so_many_of_them(text: str) -> None:
    pieces, count = Pieces(), 0
    while not pieces.full:
        pieces.add(text)
        count += 1
    assert count == -(-MOST_COST // (PIECE_COST + len(text)))


def test_fields_keep_the_order_in_which_they_were_sent() -> None:
    assert dumped({"b": 1, "a": [None, 1.5, "x"]}) == b'{"b":1,"a":[null,1.5,"x"]}'


ODD = {
    "an integer beyond 64 bits": 2**70,
    "one that Python writes in no decimal digits": 10**5000,
    "a lone surrogate": "\ud800",
    "a field with one": {"\ud800": 1},
    "infinity": [float("inf"), 2**70],
    "something opaque": [Opaque(1, 2**21)],
    "deep nesting": nested(900),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_have_some_json(name: str) -> None:
    assert dumped(ODD[name]) == dumped(ODD[name])
    assert dumped([ODD[name], 1]) != dumped([ODD[name], 2])


def test_odd_values_differ_where_their_brackets_and_quotes_do() -> None:
    several: list[Any] = [["a", "b"], ["a','b"], [["a"], "b"], ["a", ["b"]], {"a": "b"}, [{"a": "b"}]]
    assert len({dumped([2**70, one]) for one in several}) == len(several)


def test_what_is_opaque_weighs_like_an_image_within_others_too() -> None:
    assert opaque_text(Opaque(1, 2)).encode() in dumped({"data": Opaque(1, 2)})
    assert len(opaque_text(Opaque(1, 2))) == MEDIA_CHARACTERS


def test_of_a_huge_odd_value_no_more_is_read_than_may_be_spent() -> None:
    value = {"a": 2**70, "b": [list(range(10))] * 100_000}
    pieces = Pieces()
    assert len(pieces.dumped(value)) < 10 * MOST_COST // PIECE_COST
    assert pieces.full
    assert len(pieces.dumped(value)) < 10, "nothing is left, but never nothing at all"


def test_numbers_that_grow_are_cut() -> None:
    pieces = Pieces()
    pieces.add_dumped(pieces.dumped([1e15] * 500_000))
    assert len(pieces.encoded()) == MOST_COST


@examples(300)
@given(VALUES)
def test_no_value_whatever_raises(value: Any) -> None:
    pieces = Pieces()
    pieces.add_media(pieces.dumped(value))
    pieces.add_dumped(pieces.dumped(value))
    assert len(pieces.encoded()) > MEDIA_CHARACTERS
