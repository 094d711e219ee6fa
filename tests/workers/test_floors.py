"""What the requests of several workers show of the replicas."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from replicarouter.commons.memory import Commons
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.work import OwnFloor, Work
from replicarouter.workers.floors import AllFloors, Looks
from tests.scene import an_exchange, replica_settings


class Scene:
    """Two workers with requests of their own, and what their keeper reads."""

    def __init__(self, commons: Commons) -> None:
        settings = [replica_settings("a"), replica_settings("b")]
        self.workers = [Fleet(settings, Ledger()) for _ in range(2)]
        self.looks = [
            Looks(fleet, OwnFloor(fleet, 0.0), commons.seat(seat)) for seat, fleet in enumerate(self.workers)
        ]
        self.fleet = Fleet(settings, Ledger())
        self.given_up: list[Replica] = []
        self.floors = AllFloors(self.fleet, commons, self.given_up.append)
        self.serial = 0

    def begin(self, worker: int, name: str, **fields: float) -> None:
        self.serial += 1
        given = {"replica": name, "stage": Stage.STREAMING, "leased_at": 10.0, "sent_at": 10.0, **fields}
        exchange = an_exchange(upstream_id=f"u{self.serial}", **given)
        self.workers[worker].ledger.in_flight[exchange.upstream_id] = exchange

    def works(self) -> dict[str, Work]:
        for looks in self.looks:
            looks.write()
        return dict(self.floors.works())


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Commons(2)) as commons:
        yield Scene(commons)


def test_what_workers_have_is_added_up(scene: Scene) -> None:
    scene.begin(0, "a", last_byte_at=11.0)
    scene.begin(1, "a", last_byte_at=12.0)
    scene.begin(1, "b")
    works = scene.works()
    assert works["a"] == Work(at_work=2, tried=2, waiting=2, current=2, heard_at=12.0, asked_at=12.0)
    assert works["b"].at_work == 1


def test_nothing_is_left_of_requests_that_have_ended(scene: Scene) -> None:
    scene.begin(0, "a", last_byte_at=11.0)
    scene.works()
    scene.workers[0].ledger.in_flight.clear()
    assert scene.works() == {}
    assert scene.fleet.find("a").heard_at == 11.0


def test_bytes_of_answers_that_have_ended_are_told(scene: Scene) -> None:
    scene.workers[1].find("b").heard_at = 20.0
    scene.begin(1, "b", last_byte_at=15.0)
    scene.works()
    assert scene.fleet.find("b").heard_at == 20.0


def test_a_look_from_before_a_trial_says_nothing_of_it(scene: Scene) -> None:
    """The worker has not heard of the trial when it looks."""
    scene.begin(0, "a", head_at=11.0, status=200)
    scene.fleet.find("a").begin_trial(9.0)
    work = scene.works()["a"]
    assert (work.at_work, work.tried, work.spoke) == (1, 0, False)
    scene.workers[0].find("a").begin_trial(9.0)
    work = scene.works()["a"]
    assert (work.tried, work.spoke) == (1, True)


def test_hopeless_requests_are_the_workers_matter(scene: Scene) -> None:
    replica = scene.fleet.find("a")
    scene.floors.give_up(replica, 100.0, everything=False)
    assert scene.given_up == []
    scene.floors.give_up(replica, 100.0, everything=True)
    assert scene.given_up == [replica]
