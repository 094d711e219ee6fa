"""Who is looked for, and for how long."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from replicarouter.proxy.lookout import AWHILE, Lookout
from tests.scene import HandClock


class Street:
    """A lookout, and connections whose other ends are ours: who has come is noted by its number."""

    def __init__(self, stack: ExitStack, size: int) -> None:
        self.clock = HandClock()
        self.lookout = Lookout(self.clock)
        self.come: list[int] = []
        pairs = [socket.socketpair() for _ in range(size)]
        self.near = [stack.enter_context(near) for near, _ in pairs]
        self.far = [stack.enter_context(far) for _, far in pairs]

    def expect(self, number: int) -> None:
        self.lookout.expect(self.near[number].fileno(), lambda: self.come.append(number))

    def forget(self, number: int) -> None:
        self.lookout.forget(self.near[number].fileno())

    def ask(self, number: int) -> None:
        self.far[number].send(b"GET")

    def look(self) -> list[int]:
        self.lookout.look()
        come, self.come = self.come, []
        return come

    @property
    def expected(self) -> list[int]:
        numbers = {near.fileno(): number for number, near in enumerate(self.near)}
        return [numbers[descriptor] for descriptor in self.lookout.expected]


@pytest.fixture
def street() -> Iterator[Street]:
    with ExitStack() as stack:
        yield Street(stack, 3)


def test_who_is_expected_and_comes_is_called_once(street: Street) -> None:
    street.expect(0)
    street.expect(1)
    assert street.look() == []
    street.ask(1)
    assert street.look() == [1]
    assert street.look() == []
    assert street.expected == [0]
    street.ask(0)
    assert street.look() == [0]
    assert not street.lookout.expected


def test_who_comes_unexpectedly_is_left_to_the_loop(street: Street) -> None:
    street.expect(0)
    street.ask(1)
    assert street.look() == []


def test_who_has_left_is_called_as_well(street: Street) -> None:
    street.expect(0)
    street.far[0].close()
    assert street.look() == [0]


def test_who_does_not_come_in_time_is_forgotten(street: Street) -> None:
    street.expect(0)
    street.clock.move(AWHILE / 2)
    street.expect(1)
    street.clock.move(AWHILE * 3 / 4)
    assert street.look() == []
    assert street.expected == [1]
    street.ask(0)
    assert street.look() == []
    street.clock.move(AWHILE)
    street.look()
    assert street.expected == []


def test_who_comes_late_but_before_anybody_has_looked_is_called(street: Street) -> None:
    street.expect(0)
    street.clock.move(10 * AWHILE)
    street.ask(0)
    assert street.look() == [0]


def test_who_is_to_be_forgotten_is(street: Street) -> None:
    street.expect(0)
    street.expect(1)
    street.forget(0)
    street.forget(0)
    street.ask(0)
    assert street.look() == []
    assert street.expected == [1]


def test_who_comes_may_be_expected_again_at_once(street: Street) -> None:
    def again() -> None:
        street.come.append(0)
        street.near[0].recv(16)
        street.expect(0)

    street.lookout.expect(street.near[0].fileno(), again)
    street.ask(0)
    assert street.look() == [0]
    assert street.expected == [0]
    street.ask(0)
    assert street.look() == [0]


def test_who_comes_may_have_others_forgotten_that_have_come_too(street: Street) -> None:
    def alone() -> None:
        street.come.append(0)
        street.forget(1)

    street.lookout.expect(street.near[0].fileno(), alone)
    street.expect(1)
    street.ask(0)
    street.ask(1)
    assert street.look() == [0]
    assert not street.lookout.expected
