"""Where keys were placed, within bounds."""

from replicarouter.policies.key_memory import KeyMemory
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
