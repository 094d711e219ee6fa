"""What holds for every policy in the table: a new line in it is tested by being there."""

import inspect
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import Policy, View
from replicarouter.settings import POLICY_NAMES
from tests.scene import a_replica, a_request

SIZES = (1, 2, 8, 64)
DETERMINISTIC = ("round-robin", "least-outstanding")

every_policy = pytest.mark.parametrize("name", POLICIES)
every_size = pytest.mark.parametrize("size", SIZES)


def crowd(size: int) -> list[Replica]:
    ledger = Ledger()
    return [a_replica(f"r{number}", ledger=ledger) for number in range(size)]


def weighted(*weights: float) -> list[Replica]:
    ledger = Ledger()
    return [a_replica(f"r{weight:g}", ledger=ledger, weight=weight) for weight in weights]


def pick(policy: Policy, view: View) -> Replica:
    chosen = policy.pick(a_request(), view)
    assert isinstance(chosen, Replica)
    return chosen


def view_of(replicas: Sequence[Replica], random: Random, candidates: Sequence[Replica] | None = None) -> View:
    return View(replicas, replicas if candidates is None else candidates, 1000.0, random)


def test_the_settings_offer_exactly_the_policies_there_are() -> None:
    assert set(POLICY_NAMES) == set(POLICIES)


@every_policy
@every_size
def test_every_answer_is_a_candidate(name: str, size: int) -> None:
    replicas = crowd(size)
    candidates = replicas[: max(1, size // 2)]
    policy, random = POLICIES[name](), Random(7)

    chosen = {pick(policy, view_of(replicas, random, candidates)) for _ in range(20 * size)}

    assert chosen <= set(candidates)


@every_policy
@pytest.mark.parametrize("size", [size for size in SIZES if size > 1])
def test_a_replica_that_has_gone_is_never_chosen_again(name: str, size: int) -> None:
    replicas = crowd(size)
    policy, random = POLICIES[name](), Random(7)
    for _ in range(3 * size):
        policy.sent(a_request(), pick(policy, view_of(replicas, random)))

    gone = pick(policy, view_of(replicas, random))
    policy.removed(gone)
    left = [replica for replica in replicas if replica is not gone]
    chosen = {pick(policy, view_of(left, random)) for _ in range(20 * size)}

    assert gone not in chosen
    assert chosen <= set(left)


@every_policy
@every_size
def test_every_candidate_gets_its_turn(name: str, size: int) -> None:
    replicas = crowd(size)
    policy, random = POLICIES[name](), Random(7)

    chosen = {pick(policy, view_of(replicas, random)) for _ in range(20 * size)}

    assert chosen == set(replicas)


@every_policy
@every_size
def test_the_same_seed_gives_the_same_choices(name: str, size: int) -> None:
    replicas = crowd(size)

    def choices(seed: int) -> list[str]:
        policy, random = POLICIES[name](), Random(seed)
        return [pick(policy, view_of(replicas, random)).name for _ in range(50)]

    assert choices(1) == choices(1)


@pytest.mark.parametrize("name", DETERMINISTIC)
@every_size
def test_equal_replicas_take_turns(name: str, size: int) -> None:
    replicas = crowd(size)
    policy, random = POLICIES[name](), Random(7)

    rounds = [[pick(policy, view_of(replicas, random)) for _ in range(size)] for _ in range(3)]

    assert all(set(one) == set(replicas) for one in rounds)


@pytest.mark.parametrize("name", ["random", "power-of-two"])
def test_equal_replicas_get_about_the_same(name: str) -> None:
    replicas = crowd(8)
    policy, random = POLICIES[name](), Random(7)

    counts = Counter(pick(policy, view_of(replicas, random)).name for _ in range(4000))

    assert all(400 < counts[replica.name] < 600 for replica in replicas)


@pytest.mark.parametrize("name", ["round-robin", "random"])
def test_weights_set_the_shares(name: str) -> None:
    replicas = weighted(1, 2, 5)
    policy, random = POLICIES[name](), Random(7)

    counts = Counter(pick(policy, view_of(replicas, random)).name for _ in range(8000))

    tolerance = 0 if name == "round-robin" else 150
    for replica in replicas:
        assert abs(counts[replica.name] - 1000 * replica.weight) <= tolerance


@pytest.mark.parametrize("name", ["least-outstanding", "power-of-two"])
def test_weights_set_how_many_requests_run_at_a_time(name: str) -> None:
    replicas = weighted(1, 3)
    policy, random = POLICIES[name](), Random(7)

    for _ in range(400):
        chosen = pick(policy, view_of(replicas, random))
        chosen.cells[chosen.row + 3] += 1

    light, heavy = replicas
    assert heavy.outstanding == pytest.approx(3 * light.outstanding, abs=8)


@pytest.mark.parametrize("name", ["round-robin", "random"])
def test_a_newcomer_gets_requests_as_its_share_has_grown(name: str) -> None:
    newcomer, other = crowd(2)
    newcomer.start_slowly(995.0, 10.0)
    policy, random = POLICIES[name](), Random(7)

    counts = Counter(pick(policy, view_of([newcomer, other], random)).name for _ in range(3000))

    tolerance = 1 if name == "round-robin" else 100
    assert abs(counts[newcomer.name] - 1000) <= tolerance


@pytest.mark.parametrize("name", ["least-outstanding", "power-of-two"])
def test_a_newcomer_has_requests_at_a_time_as_its_share_has_grown(name: str) -> None:
    newcomer, other = crowd(2)
    newcomer.start_slowly(995.0, 10.0)
    policy, random = POLICIES[name](), Random(7)

    for _ in range(300):
        chosen = pick(policy, view_of([newcomer, other], random))
        chosen.cells[chosen.row + 3] += 1

    assert newcomer.outstanding == pytest.approx(100, abs=4)


@every_policy
def test_picking_does_not_await(name: str) -> None:
    policy = POLICIES[name]()
    for hook in (policy.pick, policy.sent, policy.finished, policy.removed):
        assert not inspect.iscoroutinefunction(hook)


@every_policy
def test_the_hooks_may_be_called_for_replicas_the_policy_never_saw(name: str) -> None:
    policy, stranger = POLICIES[name](), a_replica("stranger")

    policy.sent(a_request(), stranger)
    policy.finished(a_request(), stranger, "ok")
    policy.removed(stranger)

    known = crowd(2)
    assert pick(policy, view_of(known, Random(7))) in known
