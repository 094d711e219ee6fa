"""Consistent hashing: what moves when members change, and how even keys are spread."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from random import Random

import pytest

from replicarouter.fleet.replica import Replica
from replicarouter.policies.hash_ring import HashRing
from tests.scene import a_replica

_random = Random(7)
KEYS = [_random.getrandbits(64) for _ in range(4000)]


def members(count: int, weights: Sequence[float] = ()) -> list[Replica]:
    return [
        a_replica(f"replica-{number}", weight=weights[number] if weights else 1.0) for number in range(count)
    ]


def ring_of(replicas: Sequence[Replica]) -> HashRing:
    ring = HashRing()
    ring.follow(replicas)
    return ring


def homes(ring: HashRing, keys: Sequence[int] = KEYS) -> list[str]:
    return [ring.home(key).name for key in keys]


def moved(before: Sequence[str], after: Sequence[str]) -> set[tuple[str, str]]:
    return {(one, other) for one, other in zip(before, after, strict=True) if one != other}


def test_two_routers_agree_whatever_the_order_of_their_lists_and_what_came_before() -> None:
    replicas = members(8)
    shuffled = [*replicas]
    Random(3).shuffle(shuffled)
    grown = HashRing()
    for count in range(1, 9):
        grown.follow(shuffled[:count])
    shrunk = ring_of([*members(12)[8:], *replicas])
    shrunk.follow([*replicas])

    assert homes(ring_of(shuffled)) == homes(ring_of(replicas)) == homes(grown) == homes(shrunk)


def test_only_the_keys_of_a_replica_that_leaves_move_and_they_spread() -> None:
    replicas = members(8)
    ring = ring_of(replicas)
    before = homes(ring)

    ring.follow([one for one in replicas if one.name != "replica-3"])
    after = homes(ring)

    assert {old for old, _ in moved(before, after)} == {"replica-3"}
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old == "replica-3")
    assert len(heirs) == 7


def test_a_replica_that_comes_back_gets_its_keys_back() -> None:
    replicas = members(8)
    ring = ring_of(replicas)
    before = homes(ring)

    ring.follow(replicas[1:])
    returned = [a_replica("replica-0"), *replicas[1:]]
    ring.follow(returned)

    assert homes(ring) == before
    assert {ring.home(key) for key in KEYS} == set(returned)


def test_another_replica_of_the_same_name_takes_its_place() -> None:
    replicas = members(4)
    ring = ring_of(replicas)
    before = homes(ring)
    successor = a_replica("replica-0")

    ring.follow([successor, *replicas[1:]])

    assert homes(ring) == before
    assert {ring.home(key) for key in KEYS} == {successor, *replicas[1:]}


def test_a_newcomer_takes_its_share_and_no_more() -> None:
    ring = ring_of(members(8))
    before = homes(ring)

    ring.follow(members(9))
    after = homes(ring)

    assert {new for _, new in moved(before, after)} == {"replica-8"}
    taken = sum(old != new for old, new in zip(before, after, strict=True))
    assert len(KEYS) / 9 * 0.7 < taken < len(KEYS) / 9 * 1.3


@pytest.mark.parametrize("keys", [KEYS, range(4000)], ids=["hashes", "small numbers"])
def test_keys_are_spread(keys: Sequence[int]) -> None:
    counts = Counter(homes(ring_of(members(8)), keys))

    assert len(counts) == 8
    assert max(counts.values()) < 1.3 * len(keys) / 8
    assert min(counts.values()) > 0.7 * len(keys) / 8


@pytest.mark.parametrize("pattern", ["{}", "r{}", "10.0.0.{}"])
def test_names_that_resemble_each_other_do_not_share_their_places(pattern: str) -> None:
    counts = Counter(homes(ring_of([a_replica(pattern.format(number)) for number in range(64)])))

    assert len(counts) == 64
    assert max(counts.values()) < 1.8 * len(KEYS) / 64


@pytest.mark.parametrize("scale", [1.0, 0.01, 1e6])
def test_weights_set_the_shares_of_keys(scale: float) -> None:
    counts = Counter(homes(ring_of(members(4, [scale, scale, 2 * scale, 4 * scale]))))

    for number, weight in enumerate((1, 1, 2, 4)):
        assert counts[f"replica-{number}"] == pytest.approx(len(KEYS) * weight / 8, rel=0.3)


def test_equal_weights_are_as_good_as_none() -> None:
    assert homes(ring_of(members(4, [2.0] * 4))) == homes(ring_of(members(4)))


def test_another_weight_moves_keys_of_and_to_that_replica_alone() -> None:
    ring = ring_of(members(4, [1, 1, 1, 1.9]))
    before = homes(ring)

    ring.follow(members(4, [1, 1, 0.5, 1.9]))

    changes = moved(before, homes(ring))
    assert changes
    assert {old for old, _ in changes} == {"replica-2"}


def test_the_same_list_is_not_looked_at_again() -> None:
    replicas = members(3)
    ring = ring_of(replicas)
    replicas.pop()

    ring.follow(replicas)

    assert len(ring.members) == 3


@pytest.mark.parametrize("count", [2, 16])
def test_a_walk_begins_at_home_and_meets_everybody_once(count: int) -> None:
    ring = ring_of(members(count))
    for key in KEYS[:1000]:
        walk = [*ring.walk(key)]
        assert walk[0] is ring.home(key)
        assert len(walk) == len(set(walk)) == count


def test_who_comes_next_is_who_inherits() -> None:
    replicas = members(8)
    ring = ring_of(replicas)
    for key in KEYS[:20]:
        home, heir = islice(ring.walk(key), 2)
        assert ring_of([one for one in replicas if one is not home]).home(key) is heir


def test_a_single_member_owns_everything() -> None:
    ring = ring_of(members(1))

    assert set(homes(ring)) == {"replica-0"}
