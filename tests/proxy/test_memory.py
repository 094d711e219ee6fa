"""The bound that all request bodies share."""

from replicarouter.proxy.memory import BodyMemory


def test_room_is_given_up_to_the_bound_and_comes_back() -> None:
    memory = BodyMemory(10)
    assert memory.take(6)
    assert memory.take(4)
    assert not memory.take(1)
    assert memory.held == 10
    memory.give_back(4)
    assert memory.take(4)


def test_what_was_refused_is_not_counted() -> None:
    memory = BodyMemory(10)
    assert not memory.take(11)
    assert memory.held == 0
    assert memory.take(10)


def test_a_lower_bound_holds_for_what_comes_next() -> None:
    memory = BodyMemory(10)
    assert memory.take(8)
    memory.most = 5
    assert not memory.take(1)
    memory.give_back(8)
    assert memory.take(5)


def test_the_error_names_the_setting_and_when_to_come_back() -> None:
    error = BodyMemory(1).full()
    assert (error.status, error.code, error.retry_after) == (503, "overloaded", 1)
    assert "max_buffered_bytes" in error.message


class Holder:
    """Who holds bytes that he can do without."""

    def __init__(self, memory: BodyMemory, count: int) -> None:
        self.memory, self.count = memory, count
        assert memory.take_spare(count)
        memory.lend(self)

    def give_way(self) -> None:
        self.memory.give_back(self.count)
        self.count = 0


def test_what_is_spare_gives_way_the_oldest_first_and_no_more_than_is_needed() -> None:
    memory = BodyMemory(10)
    holders = [Holder(memory, 3) for _ in range(3)]
    assert memory.take(4)
    assert ([one.count for one in holders], memory.held) == ([0, 3, 3], 10)
    assert memory.take(1)
    assert ([one.count for one in holders], memory.held) == ([0, 0, 3], 8)


def test_what_is_spare_takes_only_free_room() -> None:
    memory = BodyMemory(10)
    holder = Holder(memory, 8)
    assert not memory.take_spare(3)
    assert (holder.count, memory.held) == (8, 8)


def test_what_was_reclaimed_does_not_give_way() -> None:
    memory = BodyMemory(10)
    holder = Holder(memory, 8)
    memory.reclaim(holder)
    memory.reclaim(holder)
    assert not memory.take(3)
    assert holder.count == 8


def test_nobody_gives_way_to_what_never_fits() -> None:
    memory = BodyMemory(10)
    holder = Holder(memory, 8)
    assert not memory.take(11)
    assert holder.count == 8
