"""How many connections the limit of the process leaves, and when the last of them are kept."""

import os
import resource
from collections.abc import Iterator

import pytest

from replicarouter.proxy.descriptors import EACH_REPLICA, KEPT, LEAST, SPARE, Descriptors


@pytest.fixture
def soft_limit() -> Iterator[int]:
    """A limit of our own; afterwards it is what it was."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_others_need_is_left_out(soft_limit: int) -> None:
    few, many = Descriptors.of_process(replicas=1), Descriptors.of_process(replicas=11)
    assert few.most - many.most == 10 * EACH_REPLICA
    assert few.most < soft_limit - SPARE - 3


def test_what_is_open_already_is_left_out(soft_limit: int) -> None:
    before = Descriptors.of_process(replicas=1).most
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    after = Descriptors.of_process(replicas=1).most
    for one in opened:
        os.close(one)
    assert before - after == 20


def test_some_connections_are_tried_in_any_case(soft_limit: int) -> None:
    assert Descriptors.of_process(replicas=soft_limit).most == LEAST


def test_connections_of_all_users_count() -> None:
    clients, upstream = [1, 2, 3], [4]
    descriptors = Descriptors(100)
    descriptors.count(lambda: len(clients))
    descriptors.count(lambda: len(upstream))
    assert descriptors.left == 96
    clients.clear()
    assert descriptors.left == 99


@pytest.mark.parametrize("most", [16, 100, 1_000_000])
def test_the_last_are_kept(most: int) -> None:
    used = 0
    descriptors = Descriptors(most)
    descriptors.count(lambda: used)
    assert descriptors.kept == most // KEPT > 0
    used = most - descriptors.kept - 1
    assert not descriptors.scarce
    used += 1
    assert descriptors.scarce
    assert descriptors.left == descriptors.kept
