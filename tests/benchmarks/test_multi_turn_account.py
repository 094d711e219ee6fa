"""The account of conversations: who stuck, how even it was, and what the caches gave."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.multi_turn_account import (
    Account,
    CacheCounts,
    Departure,
    account,
    busiest,
    departure,
    hit_share,
    imbalance,
    stuck_share,
    table,
)
from benchmarks.multi_turn_users import Turn


def turn(conversation: int, number: int, replica: str, **more: object) -> Turn:
    plain = Turn(conversation, number, replica, "hit", None, 0.1)
    return replace(plain, **more)  # type: ignore[arg-type]


def turns(**replicas: str) -> list[Turn]:
    """A conversation each: the replicas of its turns, a letter each."""
    return [
        turn(number, place, letter)
        for number, letters in enumerate(replicas.values())
        for place, letter in enumerate(letters, 1)
    ]


@pytest.mark.parametrize(
    ("replicas", "share"),
    [("aaaa", 1.0), ("abbb", 0.0), ("abaa", 2 / 3), ("aab", 0.5), ("a", 1.0)],
)
def test_a_follow_up_is_compared_with_the_first_turn(replicas: str, share: float) -> None:
    taken = turns(one=replicas)
    assert stuck_share(taken) == stuck_share(reversed(taken)) == pytest.approx(share)


def test_what_failed_neither_stuck_nor_strayed() -> None:
    assert stuck_share([*turns(one="aa"), turn(0, 3, "", failure="status 503")]) == 1.0


@pytest.mark.parametrize(
    ("amounts", "ratio"), [([5, 5], 1.0), ([9, 3], 1.5), ([4, 0, 0, 0], 4.0), ([0, 0], 1.0), ([], 1.0)]
)
def test_imbalance_is_the_largest_over_the_mean(amounts: list[float], ratio: float) -> None:
    assert imbalance(amounts) == ratio


def test_only_those_that_did_not_lose_their_replica_can_move_by_its_removal() -> None:
    taken = turns(orphan="aab", stays="bbb", moves="bbc", strayed_before="bcc", came_to_it="caa")
    left = departure(taken, "a", 3)
    assert left == Departure("a", orphans=2, others=3, moved=1)
    assert left.share_moved == pytest.approx(1 / 3)


def test_a_conversation_that_failed_is_not_among_the_others() -> None:
    taken = [*turns(stays="bbb"), turn(9, 2, "b"), turn(9, 3, "", failure="status 503")]
    assert departure(taken, "a", 3) == Departure("a", orphans=0, others=1, moved=0)


def test_the_busiest_is_who_answered_most() -> None:
    assert busiest(turns(one="ab", other="bb")) == "b"


def test_hits_are_weighed_by_tokens() -> None:
    assert hit_share([CacheCounts(100, 100), CacheCounts(300, 0)]) == 0.25
    assert hit_share([]) == 0.0


def an_account() -> Account:
    taken = [
        turn(0, 1, "a", affinity="new", ttft=0.9, prompt_tokens=100, completion_tokens=10),
        turn(0, 2, "a", ttft=0.2, prompt_tokens=200, cached_tokens=96, completion_tokens=10),
        turn(1, 1, "b", affinity="new", ttft=0.7, prompt_tokens=100, completion_tokens=10),
        turn(1, 2, "b", ttft=0.4, prompt_tokens=200, cached_tokens=54, completion_tokens=10),
        turn(2, 1, "", failure="status 503", ttft=None),
    ]
    engines = {"a": CacheCounts(300, 150), "b": CacheCounts(300, 250), "c": CacheCounts(0, 0)}
    return account("session", taken, seconds=2.0, gaps=(0.02, 0.03), engines=engines)


def test_the_account_brings_both_sides_together() -> None:
    made = an_account()
    assert (made.requests, made.failures) == (5, {"status 503": 1})
    assert (made.requests_per_second, made.tokens_per_second) == (2.0, 20.0)
    assert (made.first_ttft_p50, made.first_ttft_p90, made.ttft_p50, made.ttft_p90) == (0.7, 0.9, 0.2, 0.4)
    assert made.stuck == 1.0
    assert made.imbalance == 1.5
    assert made.uncached_imbalance == pytest.approx(150 / (200 / 3))
    assert made.engine_hits == pytest.approx(400 / 600)
    assert made.told_hits == pytest.approx(150 / 600)
    assert made.affinity == {"new": 2, "hit": 2}


def test_failures_after_a_removal_count_too() -> None:
    made = an_account()
    made.note_failures([turn(0, 3, "", failure="status 502")])
    assert made.failures == {"status 502": 1}


def test_the_table_has_a_column_for_each_policy_and_the_removal_if_there_was_one() -> None:
    one, other = an_account(), an_account()
    other.policy, other.departure = "prefix-hash", Departure("a", 2, 40, 4)
    shown = _shown([one, other])
    assert "session" in shown
    assert "prefix-hash" in shown
    assert "700 / 900" in shown
    assert "4 of 40, 10.0%" in shown
    assert "removal" not in _shown([one])


def test_the_share_that_moved_is_in_the_json() -> None:
    made = an_account()
    assert "share_moved" not in made.as_json()
    made.departure = Departure("a", 2, 40, 4)
    assert made.as_json()["share_moved"] == 0.1


def _shown(accounts: list[Account]) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table(accounts))
    return out.getvalue()
