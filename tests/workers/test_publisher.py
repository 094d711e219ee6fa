"""The fleet's changes, on their way to the workers."""

import pickle
from typing import Any

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.health import Health
from replicarouter.fleet.lifecycle import Event
from replicarouter.settings import Settings
from replicarouter.workers.publisher import Publisher
from tests.fakes.wire import eventually
from tests.scene import HandClock, a_fleet

HEAD = 4


class Scene:
    """A fleet whose publisher's messages are kept."""

    def __init__(self) -> None:
        self.fleet = a_fleet("a", "b")
        self.clock = HandClock()
        settings = Settings.model_validate({"replicas": ["http://a.invalid"]})
        self.health = Health(self.fleet, settings, self.clock)
        self.messages: list[Any] = []
        self.publisher = Publisher(self.fleet, self.health, self._send)
        self.publisher.publish()
        self.fleet.listeners += [self.health, self.publisher]
        self.messages.clear()

    def _send(self, message: bytes) -> None:
        name, *facts = pickle.loads(message[HEAD:])
        self.messages.append((name, facts))

    def told(self) -> list[list[str]]:
        """The names of the replicas in each message about the fleet."""
        return [[one.name for one in facts[0]] for name, facts in self.messages if name == "fleet"]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_everything_is_told_to_a_newcomer(scene: Scene) -> None:
    assert [one.name for one in scene.publisher.everything()] == ["a", "b"]


def test_nothing_is_told_twice(scene: Scene) -> None:
    scene.publisher.publish()
    assert scene.messages == []


async def test_one_that_goes_out_is_told_at_once(scene: Scene) -> None:
    scene.fleet.tell(scene.fleet.find("a"), Event.FAILED, "does not answer")
    assert scene.told() == [["a"]]


async def test_what_belongs_together_is_told_together(scene: Scene) -> None:
    scene.fleet.limit_each(5)
    assert scene.messages == []
    await eventually(lambda: scene.messages, "it is told")
    assert scene.told() == [["a", "b"]]


def test_a_new_reading_is_found(scene: Scene) -> None:
    scene.fleet.find("b").take(EngineReading(running=1, waiting=0), 1000.0)
    scene.publisher.publish()
    assert scene.told() == [["b"]]


async def test_it_is_told_whether_an_answer_matters(scene: Scene) -> None:
    replica = scene.fleet.find("a")
    scene.health.failed(replica, 1000.0, "http_500")
    scene.publisher.publish()
    assert replica.on_record
    scene.health.answered(replica)
    scene.publisher.publish()
    assert not replica.on_record


async def test_one_that_has_left_is_told_with_its_row(scene: Scene) -> None:
    replica = scene.fleet.find("a")
    scene.fleet.remove(replica)
    assert ("removed", ["a", replica.row]) in scene.messages
