"""Facts as people read them."""

from replicarouter.acceptance.words import addresses, by_value, counted, median, names, several


def test_who_has_which_value() -> None:
    assert by_value({"a": 1, "b": 2, "c": 1}) == "1 at a, c; 2 at b"


def test_long_lists_end_in_a_number() -> None:
    assert names(["a", "b"]) == "a, b"
    assert names([*"abcdefgh"]) == "a, b, c, d and 4 more"
    assert several([*"abcdef"]) == "a; b; c; d; and 2 more"


def test_counts() -> None:
    assert (addresses([1]), addresses([1, 2])) == ("1 address", "2 addresses")
    assert (counted(1, "engine"), counted(1200, "engine")) == ("1 engine", "1,200 engines")


def test_the_middle_one() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([]) is None
