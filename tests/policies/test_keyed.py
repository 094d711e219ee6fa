"""Consistent hashing with bounded loads and a memory of keys."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import HIT, NEW, NONE, REHASH, SPILL, Ending, View
from replicarouter.policies.keyed import Keyed
from replicarouter.policies.session import Session
from replicarouter.settings import PolicyOptions
from tests.scene import a_replica, a_request


class Scene:
    """A pool under one policy, and the requests that go to it."""

    def __init__(self, count: int = 4, *, weights: Sequence[float] = (), policy: Keyed | None = None) -> None:
        self.ledger = Ledger()
        self.replicas = [
            a_replica(f"r{number}", ledger=self.ledger, weight=weights[number] if weights else 1.0)
            for number in range(count)
        ]
        self.policy = policy or Session()
        self.now = 1000.0
        self.random = Random(7)

    def ask(
        self, key: int | None, *, out: Iterable[Replica] = (), tried: Iterable[Replica] = ()
    ) -> tuple[Replica, str]:
        """One request that ends at once: its replica and how the policy came to it."""
        request = a_request()
        request.session = key
        out = {*out, *tried}
        candidates = [one for one in self.replicas if one not in out and one.has_room]
        view = View(self.replicas, candidates, self.now, self.random)
        chosen = self.policy.pick(request, view)
        assert chosen in candidates
        self.policy.sent(request, chosen, self.now)
        return chosen, request.affinity

    def end(self, key: int, replica: Replica) -> None:
        """One request of the key has ended."""
        request = a_request()
        request.session = key
        self.policy.finished(request, replica, Ending("ok"), self.now)

    def begin(self, key: int | None) -> tuple[Replica, str]:
        """One request that goes on."""
        chosen, affinity = self.ask(key)
        chosen.cells[chosen.row + OUTSTANDING] += 1
        return chosen, affinity

    def load_all(self, count: int, but: Replica | None = None, its: int = 0) -> None:
        for replica in self.replicas:
            replica.cells[replica.row + OUTSTANDING] = its if replica is but else count

    def leave(self, replica: Replica) -> None:
        self.replicas = [one for one in self.replicas if one is not replica]
        self.policy.removed(replica)

    def join(self, replica: Replica) -> None:
        self.replicas = [*self.replicas, replica]

    def places(self, keys: Iterable[int]) -> dict[int, Replica]:
        return {key: self.ask(key)[0] for key in keys}


KEYS = range(400)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_key_is_new_once_and_then_meets_its_replica(scene: Scene) -> None:
    own, affinity = scene.ask(1)

    assert affinity == NEW
    assert [scene.ask(1) for _ in range(5)] == [(own, HIT)] * 5


def test_requests_without_a_key_are_spread_by_load(scene: Scene) -> None:
    answers = [scene.ask(None) for _ in range(400)]

    assert Counter(replica.name for replica, _ in answers) == {f"r{number}": 100 for number in range(4)}
    assert {affinity for _, affinity in answers} == {NONE}


def test_keys_are_spread(scene: Scene) -> None:
    counts = Counter(scene.places(KEYS).values())

    assert all(0.7 * 100 < counts[replica] < 1.3 * 100 for replica in scene.replicas)


def test_another_router_and_one_that_starts_again_place_keys_the_same(scene: Scene) -> None:
    other = Scene(policy=Session())
    other.replicas.reverse()

    here, there = scene.places(KEYS), other.places(KEYS)

    assert [one.name for one in here.values()] == [one.name for one in there.values()]


# Bounded loads


@pytest.mark.parametrize(
    ("mean", "own", "affinity"),
    [
        (0, 3, HIT),  # 4 are always allowed
        (0, 4, SPILL),
        (20, 27, HIT),  # 1.25 x (87 + 1) / 4 = 27.5, rounded up 28 with this one
        (20, 28, SPILL),  # 1.25 x (88 + 1) / 4 = 27.8
    ],
)
def test_a_key_that_was_seen_leaves_its_replica_only_above_the_bound(
    scene: Scene, mean: int, own: int, affinity: str
) -> None:
    home, _ = scene.ask(1)
    scene.load_all(mean, but=home, its=own)

    assert scene.ask(1)[1] == affinity
    scene.load_all(mean)
    assert scene.ask(1) == (home, HIT)


@pytest.mark.parametrize(
    ("own", "running", "affinity"),
    [(12, False, HIT), (12, True, SPILL), (24, False, SPILL)],
)
def test_a_key_with_nothing_running_is_given_more_for_chance(
    scene: Scene, own: int, running: bool, affinity: str
) -> None:
    home, _ = scene.ask(1)
    if not running:
        scene.end(1, home)
    scene.load_all(8, home, own)

    assert scene.ask(1)[1] == affinity


def test_nothing_is_kept_of_what_has_ended(scene: Scene) -> None:
    for _ in range(3):
        home, _ = scene.ask(1)
    for _ in range(3):
        scene.end(1, home)

    assert not scene.policy._running


@pytest.mark.parametrize(("own", "stays"), [(23, True), (24, False)])  # 1.125 x (83 + 1) / 4 = 23.6
def test_a_new_key_needs_more_room(scene: Scene, own: int, stays: bool) -> None:
    home = Scene().ask(1)[0].name
    scene.load_all(20, but=next(one for one in scene.replicas if one.name == home), its=own)

    placed, affinity = scene.ask(1)

    assert affinity == NEW
    assert (placed.name == home) is stays


@pytest.mark.parametrize(("factor", "own", "affinity"), [(1.0, 21, SPILL), (3.0, 120, HIT)])
def test_the_load_factor_sets_the_bound(factor: float, own: int, affinity: str) -> None:
    scene = Scene(policy=Session.of(PolicyOptions(load_factor=factor)))
    home, _ = scene.ask(1)
    scene.load_all(20, but=home, its=own)

    assert scene.ask(1)[1] == affinity


@pytest.mark.parametrize("load_factor", [1.0, 1.25, 2.0])
@pytest.mark.parametrize("weights", [(), (1, 2, 1, 4, 1, 1, 3, 1)])
def test_no_replica_gets_more_than_its_share_for_keys(load_factor: float, weights: Sequence[float]) -> None:
    scene = Scene(8, weights=weights, policy=Session(load_factor))
    shares = sum(one.weight for one in scene.replicas)
    random = Random(3)
    for number in range(1, 601):
        # A third of all requests has one and the same key.
        replica, _ = scene.begin(random.choice([0, random.randrange(1000), random.randrange(1000)]))
        assert replica.outstanding <= max(4, load_factor * number * replica.weight / shares + 1)


def test_a_replica_that_starts_slowly_is_not_overrun_by_its_keys(scene: Scene) -> None:
    places = scene.places(KEYS)
    starting = scene.replicas[0]
    scene.load_all(20, but=starting, its=4)
    starting.start_slowly(scene.now, 30.0)
    key = next(key for key, replica in places.items() if replica is starting)

    assert scene.ask(key)[1] == SPILL
    scene.now += 30.0
    assert scene.ask(key) == (starting, HIT)


def test_a_replica_that_fails_fast_attracts_no_keys(scene: Scene) -> None:
    own, _ = scene.ask(1)
    for _ in range(4):
        own.failed(scene.now)

    assert scene.ask(1)[1] == SPILL


def test_a_replica_without_room_or_that_cools_off_is_too_busy_for_its_keys(scene: Scene) -> None:
    own, _ = scene.ask(1)
    own.most = 2
    scene.load_all(0, but=own, its=2)
    assert scene.ask(1)[1] == SPILL

    scene.load_all(0)
    own.cool_until = scene.now + 5
    assert scene.ask(1, out=[own])[1] == SPILL
    assert scene.ask(1) == (own, HIT)


# Where a key stays


def crowded_out(scene: Scene, key: int) -> tuple[Replica, Replica]:
    """A key whose first request found no room at the replica it belongs to: that one, and where it went."""
    name = Scene(len(scene.replicas)).ask(key)[0].name
    home = next(one for one in scene.replicas if one.name == name)
    scene.load_all(20, but=home, its=40)
    placed, affinity = scene.ask(key)
    assert (affinity, placed is home) == (NEW, False)
    scene.load_all(20)
    return home, placed


def test_a_key_that_found_no_room_stays_where_its_cache_is(scene: Scene) -> None:
    _, placed = crowded_out(scene, 1)

    assert [scene.ask(1) for _ in range(3)] == [(placed, HIT)] * 3


def test_a_key_that_found_no_room_stays_though_others_come_and_go(scene: Scene) -> None:
    home, placed = crowded_out(scene, 1)
    scene.join(a_replica("r9", ledger=scene.ledger))
    scene.load_all(20)
    assert scene.ask(1) == (placed, HIT)

    scene.leave(home)
    assert scene.ask(1) == (placed, HIT)


def test_a_key_whose_place_is_gone_belongs_to_its_home_again(scene: Scene) -> None:
    home, placed = crowded_out(scene, 1)
    scene.leave(placed)

    assert scene.ask(1) == (home, REHASH)
    assert scene.ask(1) == (home, HIT)


def test_only_keys_of_a_replica_that_was_removed_move_and_return_when_it_is_added_again(
    scene: Scene,
) -> None:
    before = scene.places(KEYS)
    gone = scene.replicas[2]
    scene.leave(gone)

    answers = {key: scene.ask(key) for key in KEYS}
    assert {key for key in KEYS if answers[key][0] is not before[key]} == {
        key for key in KEYS if before[key] is gone
    }
    assert all(affinity == (REHASH if before[key] is gone else HIT) for key, (_, affinity) in answers.items())
    assert all(scene.ask(key) == (answers[key][0], HIT) for key in KEYS)

    back = a_replica(gone.name, ledger=scene.ledger)
    scene.join(back)
    answers = {key: scene.ask(key) for key in KEYS}
    assert [replica.name for replica, _ in answers.values()] == [one.name for one in before.values()]
    assert all(affinity == (REHASH if before[key] is gone else HIT) for key, (_, affinity) in answers.items())


def test_keys_wait_at_their_old_place_until_the_new_one_is_ready_and_has_room(scene: Scene) -> None:
    before = scene.places(KEYS)
    newcomer = a_replica("r9", ledger=scene.ledger)
    scene.join(newcomer)

    assert all(scene.ask(key, out=[newcomer]) == (before[key], HIT) for key in KEYS)
    scene.load_all(20, but=newcomer, its=24)  # 1.125 x (104 + 1) / 5 = 23.6
    assert all(scene.ask(key) == (before[key], HIT) for key in KEYS)

    scene.load_all(20)
    after = {key: scene.ask(key) for key in KEYS}
    moved = {key for key, (replica, _) in after.items() if replica is not before[key]}
    assert {after[key] for key in moved} == {(newcomer, REHASH)}
    assert 0.1 < len(moved) / len(KEYS) < 0.3
    assert all(scene.ask(key) == (newcomer, HIT) for key in moved)


def test_keys_of_a_replica_that_is_out_of_order_are_spread_and_return(scene: Scene) -> None:
    before = scene.places(KEYS)
    ill = scene.replicas[1]

    answers = {key: scene.ask(key, out=[ill]) for key in KEYS}
    assert all(
        answer[1] == REHASH if before[key] is ill else answer == (before[key], HIT)
        for key, answer in answers.items()
    )
    assert len({answer[0] for key, answer in answers.items() if before[key] is ill}) == 3

    assert all(scene.ask(key) == (before[key], HIT) for key in KEYS)


def test_a_key_that_came_while_its_replica_was_out_of_order_has_a_place_until_that_is_back(
    scene: Scene,
) -> None:
    home = Scene().ask(1)[0].name
    ill = next(one for one in scene.replicas if one.name == home)
    placed, affinity = scene.ask(1, out=[ill])

    assert affinity == NEW
    assert scene.ask(1, out=[ill]) == (placed, HIT)
    assert scene.ask(1) == (ill, REHASH)
    assert scene.ask(1) == (ill, HIT)


def test_only_the_last_choice_says_why_a_key_is_not_at_home(scene: Scene) -> None:
    name = Scene().ask(1)[0].name
    home = next(one for one in scene.replicas if one.name == name)
    others = [one for one in scene.replicas if one is not home]
    request = a_request()
    request.session = 1
    scene.load_all(20, but=home, its=40)
    scene.policy.pick(request, View(scene.replicas, scene.replicas, scene.now, scene.random))

    # It had to wait, and meanwhile its home went out of order.
    chosen = scene.policy.pick(request, View(scene.replicas, others, scene.now, scene.random))
    scene.policy.sent(request, chosen, scene.now)

    scene.load_all(20)
    assert scene.ask(1) == (home, REHASH)


def test_a_retry_does_not_move_its_key(scene: Scene) -> None:
    own, _ = scene.ask(1)

    other, affinity = scene.ask(1, tried=[own])

    assert (affinity, other is own) == (REHASH, False)
    assert scene.ask(1) == (own, HIT)


def test_a_key_that_was_forgotten_is_new_and_goes_home() -> None:
    scene = Scene(policy=Session(most_keys=10))
    own, _ = scene.ask(1)
    for key in range(100, 120):
        scene.ask(key)
        assert scene.ask(1) == (own, HIT)
    scene.places(range(200, 210))

    assert scene.ask(1) == (own, NEW)


def test_what_is_explained_is_what_is_compared(scene: Scene) -> None:
    own, _ = scene.ask(1)
    scene.load_all(20)
    view = View(scene.replicas, scene.replicas, scene.now, scene.random)
    seen, fresh = a_request(), a_request()
    seen.session, fresh.session = 1, 2

    figures = scene.policy.explain(seen, view)

    assert {name for name, one in figures.items() if one["own"]} == {own.name}
    assert {one["load"] for one in figures.values()} == {20.0}
    assert {one["limit"] for one in figures.values()} == {1.25 * 81 / 4}
    assert {one["limit"] for one in scene.policy.explain(fresh, view).values()} == {1.125 * 81 / 4}


# How well it does


def conversations(scene: Scene, users: int, at_once: int, turns: int) -> tuple[float, float]:
    """The share of later turns that met the replica of the first one, and the most that any replica had
    at a time over the mean; `at_once` requests are always under way, and end in any order."""
    random = Random(5)
    left = dict.fromkeys(range(users), turns)
    first: dict[int, Replica] = {}
    under_way: list[tuple[int, Replica]] = []
    stayed = later = 0
    worst = 0.0
    idle = [*range(users)]
    while idle or under_way:
        while idle and len(under_way) < at_once:
            user = idle.pop(random.randrange(len(idle)))
            replica, _ = scene.begin(user)
            if user in first:
                later += 1
                stayed += replica is first[user]
            first.setdefault(user, replica)
            under_way.append((user, replica))
        if len(under_way) == at_once:
            counts = [one.outstanding for one in scene.replicas]
            worst = max(worst, max(counts) * len(counts) / at_once)
        user, replica = under_way.pop(random.randrange(len(under_way)))
        replica.cells[replica.row + OUTSTANDING] -= 1
        left[user] -= 1
        if left[user]:
            idle.append(user)
    return stayed / later, worst


def test_200_conversations_at_once_stay_together_and_even() -> None:
    stayed, worst = conversations(Scene(8), 200, 200, 6)

    assert stayed >= 0.95
    assert worst <= 1.25


def test_60_of_200_users_at_once_stay_together_and_bounded() -> None:
    stayed, worst = conversations(Scene(4), 200, 60, 3)

    assert stayed >= 0.8
    assert worst <= 1.34  # 20 of 60 at most: 1.25 times the mean, rounded up
