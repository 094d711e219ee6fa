"""What a replay counts."""

from array import array

from replicarouter.replay.tally import Tally, imbalance


def test_imbalance_is_the_largest_over_the_mean() -> None:
    assert imbalance(array("q", [1, 1, 4])) == 2.0
    assert imbalance(array("q", [3, 3])) == 1.0
    assert imbalance(array("q", [0, 0])) == 1.0


def test_hits_are_a_share_of_all_prompt_tokens() -> None:
    assert Tally(1).hit_ratio == 0.0
    assert Tally(1, prompt_tokens=200, cached_tokens=50).hit_ratio == 0.25


def test_the_time_is_that_in_which_counted_requests_came() -> None:
    assert Tally(1, began=2.0, closed=5.0, ended=9.0).seconds == 3.0


def test_recall_is_what_the_policy_knew_of_what_was_cached() -> None:
    assert Tally(1, cached_tokens=50).recall is None
    assert Tally(1, cached_tokens=50, expected_tokens=40).recall == 0.8
