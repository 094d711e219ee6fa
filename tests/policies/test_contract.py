"""What holds for every policy in the table: a new line in it is tested by being there."""

import inspect
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import HIT, NEW, NONE, REHASH, SPILL, Ending, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.settings import POLICY_NAMES, PolicyOptions
from tests.properties import examples
from tests.scene import a_replica, a_request

SIZES = (1, 2, 8, 64)
KEYED = tuple(name for name, policy in POLICIES.items() if policy.needs)
BY_LOAD = tuple(name for name in POLICIES if name not in {"round-robin", "random"})
TAKING_TURNS = tuple(name for name in POLICIES if name not in {"power-of-two", "random"})
AFFINITIES = {HIT, NEW, SPILL, REHASH, NONE}

every_policy = pytest.mark.parametrize("name", POLICIES)
every_size = pytest.mark.parametrize("size", SIZES)
every_traffic = pytest.mark.parametrize(
    ("name", "keys"), [*((name, False) for name in POLICIES), *((name, True) for name in KEYED)]
)


class Traffic:
    """Requests without keys, or each with others than those before."""

    def __init__(self, *, keys: bool) -> None:
        self._random = Random(11) if keys else None

    def __next__(self) -> InferenceRequest:
        request = a_request()
        if self._random is not None:
            request.session = self._random.getrandbits(64)
            request.head = self._random.getrandbits(64)
            request.blocks = [self._random.getrandbits(64) for _ in range(4)]
            request.characters = 4 * request.block_characters
        return request


def crowd(size: int) -> list[Replica]:
    ledger = Ledger()
    return [a_replica(f"r{number}", ledger=ledger) for number in range(size)]


def weighted(*weights: float) -> list[Replica]:
    ledger = Ledger()
    return [a_replica(f"r{weight:g}", ledger=ledger, weight=weight) for weight in weights]


def pick(policy: Policy, view: View, request: InferenceRequest | None = None) -> Replica:
    chosen = policy.pick(request or a_request(), view)
    assert isinstance(chosen, Replica)
    return chosen


def view_of(replicas: Sequence[Replica], random: Random, candidates: Sequence[Replica] | None = None) -> View:
    return View(replicas, replicas if candidates is None else candidates, 1000.0, random)


def test_the_settings_offer_exactly_the_policies_there_are() -> None:
    assert set(POLICY_NAMES) == set(POLICIES)


@every_policy
def test_a_policy_is_made_with_options_and_without(name: str) -> None:
    made = POLICIES[name].of(PolicyOptions(load_factor=3.0, prefix_index_bytes=2**20))

    assert type(made) is type(POLICIES[name]()) is POLICIES[name]


@every_traffic
@every_size
def test_every_answer_is_a_candidate(name: str, keys: bool, size: int) -> None:
    replicas = crowd(size)
    candidates = replicas[: max(1, size // 2)]
    policy, random, traffic = POLICIES[name](), Random(7), Traffic(keys=keys)

    chosen = {pick(policy, view_of(replicas, random, candidates), next(traffic)) for _ in range(20 * size)}

    assert chosen <= set(candidates)


@every_traffic
@pytest.mark.parametrize("size", [size for size in SIZES if size > 1])
def test_a_replica_that_has_gone_is_never_chosen_again(name: str, keys: bool, size: int) -> None:
    replicas = crowd(size)
    policy, random, traffic = POLICIES[name](), Random(7), Traffic(keys=keys)
    requests = [next(traffic) for _ in range(20 * size)]
    for request in requests:
        policy.sent(request, pick(policy, view_of(replicas, random), request), 1000.0)

    gone = pick(policy, view_of(replicas, random))
    policy.removed(gone)
    left = [replica for replica in replicas if replica is not gone]
    chosen = {pick(policy, view_of(left, random), request) for request in requests}

    assert gone not in chosen
    assert chosen <= set(left)


@every_traffic
@every_size
def test_every_candidate_gets_its_turn(name: str, keys: bool, size: int) -> None:
    replicas = crowd(size)
    policy, random, traffic = POLICIES[name](), Random(7), Traffic(keys=keys)

    chosen = {pick(policy, view_of(replicas, random), next(traffic)) for _ in range(20 * size)}

    assert chosen == set(replicas)


@every_traffic
@every_size
def test_the_same_seed_gives_the_same_choices(name: str, keys: bool, size: int) -> None:
    replicas = crowd(size)

    def choices(seed: int) -> list[str]:
        policy, random, traffic = POLICIES[name](), Random(seed), Traffic(keys=keys)
        return [pick(policy, view_of(replicas, random), next(traffic)).name for _ in range(50)]

    assert choices(1) == choices(1)


@pytest.mark.parametrize("name", TAKING_TURNS)
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


@pytest.mark.parametrize("name", BY_LOAD)
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


@pytest.mark.parametrize("name", BY_LOAD)
def test_a_newcomer_has_requests_at_a_time_as_its_share_has_grown(name: str) -> None:
    newcomer, other = crowd(2)
    newcomer.start_slowly(995.0, 10.0)
    policy, random = POLICIES[name](), Random(7)

    for _ in range(300):
        chosen = pick(policy, view_of([newcomer, other], random))
        chosen.cells[chosen.row + 3] += 1

    assert newcomer.outstanding == pytest.approx(100, abs=4)


@every_traffic
def test_to_explain_is_to_name_each_candidates_figures_and_change_nothing(name: str, keys: bool) -> None:
    replicas = crowd(8)
    view = view_of(replicas, Random(7), replicas[1:6])

    def choices(*, explained: bool) -> list[str]:
        policy, random, traffic = POLICIES[name](), Random(7), Traffic(keys=keys)
        chosen = []
        for _ in range(30):
            request, view = next(traffic), view_of(replicas, random, replicas[1:6])
            if explained:
                policy.explain(request, view)
            chosen.append(pick(policy, view, request))
            policy.sent(request, chosen[-1], 1000.0)
        return [one.name for one in chosen]

    figures = POLICIES[name]().explain(next(Traffic(keys=keys)), view)
    assert set(figures) == {one.name for one in replicas[1:6]}
    assert all(one for one in figures.values())
    assert choices(explained=True) == choices(explained=False)


@every_policy
def test_picking_does_not_await(name: str) -> None:
    policy = POLICIES[name]()
    for hook in (policy.pick, policy.explain, policy.sent, policy.began, policy.finished, policy.removed):
        assert not inspect.iscoroutinefunction(hook)


@every_traffic
def test_the_hooks_may_be_called_for_replicas_the_policy_never_saw(name: str, keys: bool) -> None:
    policy, stranger, traffic = POLICIES[name](), a_replica("stranger"), Traffic(keys=keys)
    request = next(traffic)

    policy.began(request, stranger, 1000.0)
    policy.finished(request, stranger, Ending("ok"), 1000.0)
    policy.sent(request, stranger, 1000.0)
    policy.removed(stranger)

    known = crowd(2)
    assert pick(policy, view_of(known, Random(7)), request) in known


@every_policy
def test_a_policy_without_needs_leaves_the_keys_alone(name: str) -> None:
    if POLICIES[name].needs is not Needs.NOTHING:
        return
    request = next(Traffic(keys=True))
    replicas = crowd(2)

    pick(POLICIES[name](), view_of(replicas, Random(7)), request)

    assert request.affinity == NONE


any_key = st.none() | st.integers(-(2**70), 2**70) | st.integers(0, 3)
any_replica = st.fixed_dictionaries(
    {
        "weight": st.sampled_from([1.0, 1.0, 0.001, 0.7, 3.0, 1000.0]),
        "outstanding": st.integers(0, 40),
        "most": st.integers(0, 8),
        "failures": st.integers(0, 3),
        "foreign": st.sampled_from([0, 0, 5]),
        "starts_for": st.sampled_from([0.0, 0.0, 30.0]),
        "cools_for": st.sampled_from([0.0, 0.0, 5.0]),
        "trial": st.booleans(),
        "ready": st.booleans(),
    }
)
any_request = st.builds(
    lambda session, head, blocks: (session, head, blocks),
    any_key,
    any_key,
    st.lists(st.integers(0, 2**64 - 1), max_size=6),
)
any_step = st.tuples(
    st.sampled_from(["pick", "pick", "pick", "explain", "sent", "began", "finished", "removed", "join"]),
    st.integers(0, 7),
    st.integers(0, 7),
    st.floats(0.0, 20.0),
)


def as_described(replica: Replica, told: dict[str, Any]) -> Replica:
    replica.cells[replica.row + 3] = told["outstanding"]
    replica.most = told["most"]
    for _ in range(told["failures"]):
        replica.failed(1000.0)
    replica.take(EngineReading(running=told["outstanding"] + told["foreign"], waiting=0), 1000.0)
    if told["starts_for"]:
        replica.start_slowly(1000.0, told["starts_for"])
    replica.cool_until = 1000.0 + told["cools_for"]
    if told["trial"]:
        replica.begin_trial()
    return replica


@every_policy
@examples(150)
@given(
    told=st.lists(any_replica, min_size=1, max_size=8),
    keys=st.lists(any_request, min_size=1, max_size=4),
    steps=st.lists(any_step, max_size=40),
    shared=st.booleans(),
)
def test_nothing_makes_a_policy_raise(
    name: str, told: list[Any], keys: list[Any], steps: list[Any], shared: bool
) -> None:
    ledger = Ledger()
    made = [
        a_replica(f"r{number}", ledger=ledger if shared else Ledger(), weight=one["weight"])
        for number, one in enumerate(told)
    ]
    replicas = [as_described(*one) for one in zip(made, told, strict=True)]
    requests = []
    for session, head, blocks in keys:
        request = a_request()
        request.session, request.head, request.blocks = session, head, blocks
        request.characters = len(blocks) * request.block_characters
        requests.append(request)
    policy, random, now, members = POLICIES[name](), Random(7), 1000.0, [*replicas]
    for what, which, who, seconds in steps:
        now += seconds
        request, replica = requests[which % len(requests)], replicas[who % len(replicas)]
        ready = [one for one in members if told[replicas.index(one)]["ready"] and one.has_room]
        view = View(members, ready or members, now, random, seconds)
        if what == "pick":
            chosen = policy.pick(request, view)
            if isinstance(chosen, Wait):
                chosen = chosen.replica
            else:
                assert chosen in view.candidates
                policy.sent(request, chosen, now)
            assert chosen in members
            assert request.affinity in AFFINITIES
        elif what == "explain":
            policy.explain(request, view)
        elif what == "sent":
            policy.sent(request, replica, now)
        elif what == "began":
            policy.began(request, replica, now)
        elif what == "finished":
            policy.finished(request, replica, Ending("ok", which, who, which), now)
        elif what == "join" and replica not in members:
            members = [*members, replica]
        elif what == "removed" and len(members) > 1:
            members = [one for one in members if one is not replica]
            policy.removed(replica)
