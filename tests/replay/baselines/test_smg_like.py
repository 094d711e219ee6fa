"""The rule in the shape of SMG's."""

from replicarouter.replay.baselines.smg_like import BALANCE_ABSOLUTE, SmgLike
from replicarouter.replay.fleet import ReplayFleet
from tests.replay.scene import ask, view_of

TEN = tuple(range(10))


def holding(*numbers: int) -> tuple[SmgLike, ReplayFleet]:
    """A policy that has sent the ten blocks to these replicas."""
    policy, fleet = SmgLike(), ReplayFleet(4)
    for number in numbers:
        policy.sent(ask(*TEN), fleet.replicas[number], 0.0)
    return policy, fleet


def test_more_than_a_threshold_of_the_prompt_draws_it_to_its_holder() -> None:
    policy, fleet = holding(2)
    for shared, drawn in ((4, True), (3, False)):
        request = ask(*TEN[:shared], *range(100, 110 - shared))
        assert (policy.pick(request, view_of(fleet)) is fleet.replicas[2]) is drawn
        assert request.affinity == ("hit" if drawn else "new")


def test_of_equal_holders_the_less_loaded_is_chosen() -> None:
    policy, fleet = holding(1, 2)
    fleet.take(fleet.replicas[1])
    assert policy.pick(ask(*TEN), view_of(fleet)) is fleet.replicas[2]


def test_the_longest_match_comes_before_the_load() -> None:
    policy, fleet = holding(1)
    policy.sent(ask(*TEN[:5]), fleet.replicas[2], 0.0)
    fleet.take(fleet.replicas[1])
    assert policy.pick(ask(*TEN), view_of(fleet)) is fleet.replicas[1]


def test_a_holder_that_is_far_too_busy_is_left() -> None:
    policy, fleet = holding(2)
    for _ in range(BALANCE_ABSOLUTE * 4 // 3):
        fleet.take(fleet.replicas[2])
    assert policy.pick(ask(*TEN), view_of(fleet)) is fleet.replicas[2]
    fleet.take(fleet.replicas[2])
    fleet.take(fleet.replicas[2])
    request = ask(*TEN)
    assert policy.pick(request, view_of(fleet)) is not fleet.replicas[2]
    assert request.affinity == "spill"


def test_a_holder_among_busy_ones_is_kept() -> None:
    """It has 75 requests more than the mean, but not one and a half times as many."""
    policy, fleet = holding(2)
    for replica in fleet.replicas:
        for _ in range(300 if replica is fleet.replicas[2] else 200):
            fleet.take(replica)
    assert policy.pick(ask(*TEN), view_of(fleet)) is fleet.replicas[2]


def test_a_removed_replica_holds_nothing() -> None:
    policy, fleet = holding(2)
    policy.removed(fleet.replicas[2])
    assert {policy.pick(ask(*TEN), view_of(fleet)).row for _ in range(4)} == {r.row for r in fleet.replicas}
    assert policy.explain(ask(*TEN), view_of(fleet))["replica-0002"]["matched_blocks"] == 0
