"""Limits are read from the router's page, the narrowest first."""

import pytest

from replicarouter.acceptance.errors import Unreadable
from replicarouter.acceptance.limits import ASSUMED_MAX_NUM_SEQS, Bound, binding, bounds
from replicarouter.acceptance.pages import RouterPage
from replicarouter.acceptance.reply import Reply
from replicarouter.cli import startup

STATES = {"a": "ready", "b": "ready", "c": "ejected"}


def page(total: int | None = 0, each: int | None = 0, own: dict[str, int] | None = None) -> RouterPage:
    states = {f'replica="{name}",state="{state}"': 1 for name, state in STATES.items()}
    families: dict[str, dict[str, int | None]] = {
        "connector_limit": {"": total},
        "connector_limit_per_replica": {"": each},
        "replica_state": {'replica="a",state="loading"': 0, **states},
        "replica_outstanding_limit": {f'replica="{name}"': most for name, most in (own or {}).items()},
    }
    text = "".join(
        f"# TYPE replicarouter_{name} gauge\nreplicarouter_{name}{{{labels}}} {value}\n"
        for name, samples in families.items()
        for labels, value in samples.items()
        if value is not None
    )
    return RouterPage(Reply("the router", 200, {}, text.encode()))


def told(found: list[Bound]) -> list[tuple[str, float]]:
    return [(bound.setting, bound.lets) for bound in found]


def test_the_assumption_is_that_of_start_up() -> None:
    assert ASSUMED_MAX_NUM_SEQS == startup.ASSUMED_MAX_NUM_SEQS


def test_what_is_not_limited_has_no_bound() -> None:
    assert bounds(page(own=dict.fromkeys(STATES, 0)), []) == []


def test_a_replica_that_is_not_ready_lets_nothing_through() -> None:
    found = bounds(page(total=9, each=4, own=dict.fromkeys(STATES, 5)), [])
    assert told(found) == [
        ("connector.limit_per_replica", 8),
        ("connector.limit", 9),
        ("admission.max_outstanding_per_replica", 10),
    ]
    assert told(binding(found, 10)) == told(found)[:2]


def test_the_narrowest_pool_counts() -> None:
    assert told(bounds(page(each=4), [["a", "b"], ["b"]])) == [("connector.limit_per_replica", 4)]
    assert told(bounds(page(each=4), [["a", "elsewhere"]])) == [("connector.limit_per_replica", 8)]


def test_a_replica_without_a_limit_takes_all() -> None:
    (bound,) = bounds(page(own={"a": 2, "b": 0, "c": 0}), [])
    assert (bound.setting, bound.lets) == ("replicas[].max_outstanding", float("inf"))
    assert bound.told == "replicas[].max_outstanding is 2 at a"
    assert binding([bound], 1000) == []


@pytest.mark.parametrize("given", [page(total=None), page(each=None)])
def test_a_page_without_the_limits_is_not_taken_for_one_without_limits(given: RouterPage) -> None:
    with pytest.raises(Unreadable, match="does not tell its connector limits"):
        bounds(given, [])
