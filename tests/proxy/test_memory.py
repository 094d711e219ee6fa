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
