"""Ranks out of a header field, for those who may set it."""

import pytest
from multidict import CIMultiDict

from replicarouter.admission.priority import Priority
from replicarouter.settings import PriorityHeader

HEADER = PriorityHeader(name="X-Priority", values=["high", "normal"])


def fields(value: str | None) -> CIMultiDict[str]:
    return CIMultiDict({} if value is None else {"x-priority": value})


@pytest.mark.parametrize(
    ("value", "rank"),
    [("high", 0), ("normal", 1), (" high ", 0), (None, 2), ("", 2), ("High", 2), ("highest", 2), ("0", 2)],
)
@pytest.mark.parametrize("keys_needed", [True, False])
def test_values_rank_in_their_order_and_all_else_comes_last(
    value: str | None, rank: int, keys_needed: bool
) -> None:
    assert Priority(HEADER, keys_needed=keys_needed).rank(fields(value), "team") == rank


def test_where_keys_are_needed_only_who_has_one_is_believed() -> None:
    assert Priority(HEADER, keys_needed=True).rank(fields("high"), None) == 2
    assert Priority(HEADER, keys_needed=False).rank(fields("high"), None) == 0


def test_without_the_setting_all_are_equal() -> None:
    assert Priority(None, keys_needed=False).rank(fields("high"), None) == 0


def test_a_value_listed_twice_has_its_first_rank() -> None:
    priority = Priority(PriorityHeader(name="X-Priority", values=["a", "b", "a"]), keys_needed=False)

    assert [priority.rank(fields(value), None) for value in ("a", "b", None)] == [0, 1, 2]
