"""How a number went."""

import pytest

from replicarouter.diagnosis.course import Course


def test_a_single_value_is_all_of_it() -> None:
    course = Course([3])
    assert (course.last, course.median, course.most, course.floor, course.ceiling) == (3, 3, 3, 3, 3)


def test_a_few_looks_count_each() -> None:
    course = Course([5, 0, 7, 6, 9])
    assert (course.last, course.median, course.floor, course.ceiling) == (9, 6, 0, 9)


def test_of_many_looks_one_in_five_may_differ() -> None:
    course = Course([0, 0, *[5] * 7, 9, 9])
    assert (course.floor, course.ceiling, course.most) == (5, 5, 9)
    assert Course([0, 0, 0, *[5] * 8]).floor == 0


def test_the_middle_of_an_even_number_is_between_two() -> None:
    assert Course([4, 1, 9, 2]).median == 3


def test_nothing_has_no_course() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Course([])
