"""Where keys were placed, within bounds."""

import sys
import tracemalloc

from replicarouter.policies.key_memory import BYTES_PER_KEY, KeyMemory
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
            memory.put(key, replica)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken + len(keys) * sys.getsizeof(keys[-1]) <= BYTES_PER_KEY * len(keys)
