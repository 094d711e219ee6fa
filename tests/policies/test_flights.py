"""Requests at their replicas, as long as their prompts have yet to be computed."""

import pytest

from replicarouter.policies.backlog import Backlog
from replicarouter.policies.flights import Flight, Member, UnderWay
from tests.scene import a_replica


class Scene:
    """One replica, and what waits there."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self.backlog.open(0)
        self.under_way = UnderWay(self.backlog)
        self.under_way.open(0)
        self.member = Member(a_replica(), 0, 0)

    def flight(self, tokens: float = 100.0) -> Flight:
        return Flight(self.member, tokens, 0.0, 0, 0.0, 1, 1000.0)

    @property
    def waiting(self) -> float:
        return self.backlog.waiting[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_prompt_waits_until_it_is_computed_and_is_taken_off_once(scene: Scene) -> None:
    one, other = scene.flight(), scene.flight()
    scene.under_way.enter(one, 0.0)
    scene.under_way.enter(other, 0.0)
    for _ in range(2):
        scene.under_way.computed(one)
    assert scene.waiting == 100.0
    assert one.number != other.number


def test_what_nobody_tells_of_is_taken_off_when_it_should_be_computed(scene: Scene) -> None:
    for begins in (1003.0, 1001.0, 1002.0):
        scene.under_way.enter(scene.flight(), begins)
    waiting = []
    for now in (1000.5, 1001.0, 1002.5, 1003.5):
        scene.under_way.settle(now)
        waiting.append(scene.waiting)
    assert waiting == [300.0, 200.0, 100.0, 0.0]


def test_another_workers_is_known_by_its_number_until_it_ends(scene: Scene) -> None:
    under_way, one, other = scene.under_way, scene.flight(), scene.flight()
    under_way.enter_other(1, 5, one, 0.0)
    under_way.enter_other(2, 5, other, 0.0)
    assert under_way.requests == [2]
    assert under_way.end_other(1, 5) is one
    assert under_way.end_other(1, 5) is None
    assert scene.waiting == 100.0
    assert under_way.requests == [1]


def test_a_worker_that_is_lost_takes_all_its_own_along(scene: Scene) -> None:
    under_way = scene.under_way
    for worker, number in ((1, 1), (1, 2), (2, 1)):
        under_way.enter_other(worker, number, scene.flight(), 1005.0)
    for _ in range(2):
        under_way.lost(1)
    assert scene.waiting == 100.0
    assert under_way.requests == [1]
    under_way.settle(1006.0)
    assert scene.waiting == 0.0


def test_a_request_is_there_until_it_ends_and_not_only_until_its_prompt_is_computed(scene: Scene) -> None:
    under_way, own, other = scene.under_way, scene.flight(), scene.flight()
    other.blocks = [1, 2]
    under_way.enter(own, 0.0)
    under_way.enter_other(1, 7, other, 0.0)
    under_way.computed(own)
    under_way.computed_other(1, 7)
    under_way.computed_other(1, 8)
    assert (scene.waiting, under_way.requests) == (0.0, [2])
    assert not other.blocks
    under_way.leave(own)
    assert under_way.end_other(1, 7) is other
    assert under_way.requests == [0]


def test_who_has_gone_leaves_nothing_in_its_slot(scene: Scene) -> None:
    under_way, one, other = scene.under_way, scene.flight(), scene.flight()
    under_way.enter(one, 0.0)
    scene.member.gone = True
    scene.backlog.close(0)
    scene.backlog.open(0)
    under_way.open(0)
    scene.member = Member(a_replica("b"), 0, 0)
    other.member = scene.member
    under_way.enter(other, 0.0)
    under_way.leave(one)
    assert (scene.waiting, under_way.requests) == (100.0, [1])


def test_what_is_typical_follows_the_requests(scene: Scene) -> None:
    for tokens in (100.0,) * 50 + (900.0,) * 50:
        scene.under_way.enter(scene.flight(tokens), 0.0)
    assert 800 < scene.under_way.typical < 900
