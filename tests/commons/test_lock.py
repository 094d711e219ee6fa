"""The lock over processes: signed by whoever has it, and not lost with whoever dies with it."""

import os
import time

import pytest

from replicarouter.commons.layout import HOLDER
from replicarouter.commons.lock import is_running
from replicarouter.commons.memory import Commons
from tests.commons.conftest import Fork

KEEPER = 3


def test_who_has_the_lock_has_signed(commons: Commons) -> None:
    with commons.lock.held(2):
        assert commons.header[HOLDER] == 2
        assert not commons.lock.acquire(False)
    assert commons.header[HOLDER] == 0


def test_it_is_given_back_when_something_goes_wrong(commons: Commons) -> None:
    with pytest.raises(ValueError, match="wrong"), commons.lock.held(2):
        raise ValueError("wrong")

    assert commons.lock.acquire(False)


def add_under_lock(commons: Commons, mark: int) -> None:
    for _ in range(20_000):
        with commons.lock.held(mark):
            commons.header[50] += 1


def test_nobody_is_in_there_with_another(commons: Commons, fork: Fork) -> None:
    children = [fork(add_under_lock, commons, mark) for mark in (1, 2)]
    for child in children:
        child.result()

    assert commons.header[50] == 40_000


def test_the_lock_of_the_dead_is_taken_over_at_once(commons: Commons) -> None:
    commons.lock.acquire()
    commons.header[HOLDER] = 1
    began = time.monotonic()
    commons.lock.seize(1, KEEPER, lambda _: True)

    assert time.monotonic() - began < 0.4
    assert commons.header[HOLDER] == KEEPER


def test_the_lock_of_another_that_is_dead_too_is_taken_over(commons: Commons) -> None:
    commons.lock.acquire()
    commons.header[HOLDER] = 2
    commons.lock.seize(1, KEEPER, lambda mark: mark != 2)

    assert commons.header[HOLDER] == KEEPER


def hold_a_while(commons: Commons) -> None:
    with commons.lock.held(2):
        commons.header[51] = 1
        time.sleep(0.7)


def test_the_lock_of_the_living_is_waited_for(commons: Commons, fork: Fork) -> None:
    child = fork(hold_a_while, commons)
    while not commons.header[51]:
        time.sleep(0)
    commons.lock.seize(1, KEEPER, lambda _: True)

    assert commons.header[HOLDER] == KEEPER
    assert not commons.lock.acquire(False)
    child.result()


def nothing() -> None:
    """Ends at once."""


def test_a_process_is_running_until_it_is_buried(fork: Fork) -> None:
    child = fork(nothing)
    child.result()

    assert [is_running(pid) for pid in (os.getpid(), 1, child.pid, 0)] == [True, True, False, False]
