"""The rule in the shape of Dynamo's."""

from replicarouter.policies.base import Ending
from replicarouter.replay.baselines.dynamo_like import DynamoLike
from replicarouter.replay.fleet import ReplayFleet
from tests.replay.scene import ask, view_of

TEN = tuple(range(10))


def costs(policy: DynamoLike, fleet: ReplayFleet, *blocks: int) -> list[float]:
    return [one["cost"] for one in policy.explain(ask(*blocks), view_of(fleet)).values()]


def test_the_cost_is_blocks_to_compute_and_blocks_in_use() -> None:
    policy, fleet = DynamoLike(), ReplayFleet(2)
    assert costs(policy, fleet, *TEN) == [20, 20]
    request = ask(*TEN)
    policy.sent(request, fleet.replicas[0], 0.0)
    # 10 wait there and are all cached for this one, and in use already; elsewhere it is as before.
    assert costs(policy, fleet, *TEN) == [10 + 10 - 10 + 10, 20]
    policy.began(request, fleet.replicas[0], 1.0)
    assert costs(policy, fleet, *TEN) == [0 + 10, 20]
    assert costs(policy, fleet, 50, 51) == [2 + 10 + 2, 4]
    policy.finished(request, fleet.replicas[0], Ending("ok"), 2.0)
    assert costs(policy, fleet, *TEN) == [0 + 10, 20]
    assert costs(policy, fleet, 50, 51) == [4, 4]


def test_shared_blocks_are_in_use_once_and_until_the_last_user_ends() -> None:
    policy, fleet = DynamoLike(), ReplayFleet(1)
    one, other = ask(1, 2, 3), ask(1, 2, 4)
    for request in (one, other):
        policy.sent(request, fleet.replicas[0], 0.0)
        policy.began(request, fleet.replicas[0], 0.0)
    assert costs(policy, fleet, 9) == [1 + 4 + 1]
    policy.finished(one, fleet.replicas[0], Ending("ok"), 1.0)
    assert costs(policy, fleet, 9) == [1 + 3 + 1]
    policy.finished(other, fleet.replicas[0], Ending("ok"), 1.0)
    assert costs(policy, fleet, 9) == [1 + 0 + 1]


def test_the_least_costly_replica_is_chosen_and_equal_ones_take_turns() -> None:
    policy, fleet = DynamoLike(), ReplayFleet(3)
    chosen = [fleet.numbers[policy.pick(ask(number), view_of(fleet))] for number in range(4)]
    assert chosen == [0, 1, 2, 0]
    policy.sent(ask(*TEN), fleet.replicas[1], 0.0)
    request = ask(*TEN, 10)
    assert policy.pick(request, view_of(fleet)) is not fleet.replicas[1] or request.affinity == "hit"


def test_a_removed_replica_costs_nothing_more() -> None:
    policy, fleet = DynamoLike(), ReplayFleet(2)
    request = ask(*TEN)
    policy.sent(request, fleet.replicas[0], 0.0)
    policy.removed(fleet.replicas[0])
    policy.finished(request, fleet.replicas[0], Ending("ok"), 1.0)
    assert costs(policy, fleet, *TEN) == [20, 20]
