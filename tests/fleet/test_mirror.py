"""A fleet that is kept like another one, in another process."""

import pickle

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.mirror import Mirror, portrait
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import Replica
from tests.scene import a_fleet, replica_settings


class Ears(FleetListener):
    """Notes what the mirrored fleet tells."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def take(self) -> list[tuple[str, str]]:
        heard, self.heard = self.heard, []
        return heard

    def ready(self, replica: Replica) -> None:
        self.heard.append(("ready", replica.name))

    def widened(self, replica: Replica) -> None:
        self.heard.append(("widened", replica.name))

    def lost(self, replica: Replica) -> None:
        self.heard.append(("lost", replica.name))

    def added(self, replica: Replica) -> None:
        self.heard.append(("added", replica.name))

    def removed(self, replica: Replica) -> None:
        self.heard.append(("removed", replica.name))


class Scene:
    """A fleet, and another one that is told of it."""

    def __init__(self) -> None:
        self.fleet = a_fleet("a", "b")
        ledger = Ledger()
        for _ in self.fleet:
            ledger.add_row()
        self.other = Fleet((), ledger)
        self.changed: list[str] = []
        self.mirror = Mirror(self.other, lambda replica: self.changed.append(replica.name))
        self.ears = Ears()
        self.other.listeners.append(self.ears)
        self.show()
        self.first = self.ears.take()

    def show(self) -> None:
        """As it goes over a wire."""
        seen = pickle.dumps([portrait(replica) for replica in self.fleet])
        self.mirror.adopt(pickle.loads(seen))

    def heard(self) -> list[tuple[str, str]]:
        self.show()
        return self.ears.take()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_replicas_join_as_they_are(scene: Scene) -> None:
    assert scene.first == [("added", "a"), ("ready", "a"), ("added", "b"), ("ready", "b")]
    assert [one.row for one in scene.other] == [one.row for one in scene.fleet]
    assert [one.name for one in scene.other.pools["m1"].ready] == ["a", "b"]


def test_nothing_is_told_where_nothing_has_changed(scene: Scene) -> None:
    assert scene.heard() == []


def test_who_goes_out_and_comes_in_is_told(scene: Scene) -> None:
    scene.fleet.tell(scene.fleet.find("a"), Event.FAILED, "does not answer")
    assert scene.heard() == [("lost", "a")]
    assert scene.other.find("a").state is State.UNHEALTHY
    assert scene.other.find("a").reason == "does not answer"
    assert [one.name for one in scene.other.pools["m1"].ready] == ["b"]
    scene.fleet.tell(scene.fleet.find("a"), Event.PASSED, "well again")
    assert scene.heard() == [("ready", "a")]


def test_orders_of_an_operator_are_told(scene: Scene) -> None:
    scene.fleet.drain(scene.fleet.find("b"))
    assert scene.heard() == [("lost", "b")]
    assert scene.other.find("b").state is State.DRAINING
    scene.fleet.undrain(scene.fleet.find("b"))
    assert scene.heard() == [("ready", "b")]


def test_more_room_is_told(scene: Scene) -> None:
    scene.fleet.limit_each(3)
    assert scene.heard() == [("widened", "a"), ("widened", "b")]
    assert scene.other.pools["m1"].bounded
    assert {one.most for one in scene.other} == {3}


def test_a_trial_and_its_end_are_told(scene: Scene) -> None:
    scene.fleet.find("a").begin_trial(5.0)
    scene.heard()
    replica = scene.other.find("a")
    assert (replica.trial, replica.tried_at) == (True, 5.0)
    scene.fleet.find("a").end_trial()
    assert scene.heard() == [("widened", "a")]


def test_readings_and_failures_travel(scene: Scene) -> None:
    replica = scene.fleet.find("a")
    replica.take(EngineReading(running=5, waiting=2), 100.0)
    replica.failed(100.0)
    replica.cool_until = 110.0
    scene.show()
    other = scene.other.find("a")
    assert other.load(101.0) == replica.load(101.0) == 8
    assert other.cooling(101.0)
    reading = other.fresh_reading(101.0, 3.0)
    assert reading is not None
    assert reading.engine.running == 5


def test_other_settings_are_told_to_those_with_connections(scene: Scene) -> None:
    scene.fleet.change(scene.fleet.find("a"), replica_settings("a", weight=3.0))
    scene.show()
    assert scene.changed == ["a"]
    assert scene.other.find("a").weight == 3.0


def test_one_that_has_left_leaves(scene: Scene) -> None:
    replica = scene.other.find("a")
    scene.mirror.remove("a", replica.row)
    assert scene.ears.take() == [("removed", "a")]
    assert [one.name for one in scene.other] == ["b"]
    scene.mirror.remove("a", replica.row)
    assert scene.ears.take() == []


def test_a_namesake_in_another_row_is_another_replica(scene: Scene) -> None:
    before = scene.other.find("a")
    scene.fleet.find("a").row = 800
    assert scene.heard() == [("removed", "a"), ("added", "a"), ("ready", "a")]
    assert scene.other.find("a") is not before
    scene.mirror.remove("a", before.row)
    assert scene.other.find("a").row == 800
