"""Where keys were placed, within bounds."""

import sys
import tracemalloc

import pytest

from replicarouter.policies.key_memory import BYTES_PER_KEY, KeyMemory, Place
from tests.scene import a_replica


def test_a_key_that_was_never_placed_is_not_known() -> None:
    assert KeyMemory(10).find(1) is None


def test_a_key_is_where_it_was_placed_last() -> None:
    memory, one, other = KeyMemory(10), a_replica("a"), a_replica("b")
    memory.put(1, one, displaced=True)
    memory.put(2, one)
    memory.put(1, other)

    places = [memory.find(key) for key in (1, 2)]

    assert [(place.replica, place.displaced) for place in places if place] == [(other, False), (one, False)]
    assert len(memory) == 2


def test_the_key_that_was_not_used_for_longest_is_forgotten_first() -> None:
    memory, replica = KeyMemory(3), a_replica()
    for key in (1, 2, 3):
        memory.put(key, replica)
    memory.use(1)
    memory.put(2, replica)
    memory.put(4, replica)

    assert [key for key in (1, 2, 3, 4) if memory.find(key)] == [1, 2, 4]
    assert len(memory) == 3


def test_what_is_forgotten_is_counted() -> None:
    memory, replica = KeyMemory(10), a_replica("a")
    for key in range(25):
        memory.put(key, replica)

    assert len(memory) == 10
    assert memory.forgotten == 15


def test_a_key_takes_no_more_than_is_said() -> None:
    replica, keys = a_replica("a"), [(number * 2654435761) << 28 for number in range(20_000)]
    tracemalloc.start()
    try:
        memory = KeyMemory(len(keys))
        for key in keys:
            memory.put(key, replica, at=float(key))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken + len(keys) * sys.getsizeof(keys[-1]) <= BYTES_PER_KEY * len(keys)


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [("a", 4.0, "b"), ("c", 4.0, "b"), ("a", 5.0, "b"), ("c", 5.0, "c"), ("a", 6.0, "a")],
)
def test_of_two_places_the_later_one_counts(name: str, at: float, expected: str) -> None:
    memory = KeyMemory(10)
    memory.put(1, a_replica("b"), at=5.0)
    memory.hear(1, Place(a_replica(name), displaced=True, at=at))
    place = memory.find(1)
    assert place is not None
    assert place.replica.name == expected
    assert place.displaced == (expected == name)


def test_what_is_heard_is_bounded_like_the_rest() -> None:
    memory = KeyMemory(3)
    for key in range(5):
        memory.hear(key, Place(a_replica(), displaced=False))
    assert [key for key in range(5) if memory.find(key)] == [2, 3, 4]
    assert memory.forgotten == 2
