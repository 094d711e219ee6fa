"""The replicas that the settings list come, change and go; all others stay as they are."""

from typing import Any

import pytest

from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Duty, State
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.reload.roster import Roster
from replicarouter.settings import ReplicaSettings
from tests.scene import a_fleet, named, replica_settings


class Scene:
    """A fleet of ready replicas a and b, its roster, and whom the roster has changed."""

    def __init__(self) -> None:
        self.changed: list[Replica] = []
        self.fleet: Fleet = a_fleet("a", "b")
        self.roster = Roster(self.fleet, self.changed.append)
        self.fleet.listeners.append(self.roster)

    def apply(self, *wanted: ReplicaSettings | str) -> None:
        self.roster.apply(
            [one if isinstance(one, ReplicaSettings) else replica_settings(one) for one in wanted]
        )

    def have(self, name: str, outstanding: int) -> Replica:
        """Let a replica have so many requests."""
        replica = named(self.fleet, name)
        self.fleet.ledger.cells[replica.row + OUTSTANDING] = outstanding
        if not outstanding:
            self.fleet.idle(replica)
        return replica

    @property
    def names(self) -> list[str]:
        return [replica.name for replica in self.fleet]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_same_list_changes_nothing(scene: Scene) -> None:
    before = list(scene.fleet)
    scene.apply("a", "b")
    assert list(scene.fleet) == before
    assert scene.changed == []


def test_newcomers_join_as_children_of_the_settings(scene: Scene) -> None:
    scene.apply("a", "b", "c")
    joined = named(scene.fleet, "c")
    assert (joined.origin, joined.state) == ("file", State.LOADING)


def test_who_is_not_listed_leaves(scene: Scene) -> None:
    scene.apply("b")
    assert scene.names == ["b"]


def test_who_is_busy_leaves_later(scene: Scene) -> None:
    leaving = scene.have("a", 1)
    scene.apply("b")
    assert leaving.state is State.DRAINING
    scene.have("a", 0)
    assert scene.names == ["b"]


@pytest.mark.parametrize(
    "options",
    [
        {"weight": 3.0},
        {"max_outstanding": 4},
        {"api_key": "sk-other"},
        {"models": ["m2", "m3"]},
        {"labels": {"rack": "7"}},
        {"max_num_seqs": 9},
        {"engine": "sglang"},
    ],
    ids=str,
)
def test_what_is_said_of_a_replica_changes_in_place(scene: Scene, options: dict[str, Any]) -> None:
    before = scene.have("a", 2)
    wanted = replica_settings("a", **options)
    scene.apply(wanted, "b")
    after = named(scene.fleet, "a")
    assert after is before
    assert scene.changed == [after]
    assert (after.settings, after.state, after.outstanding) == (wanted, State.READY, 2)
    assert after.weight == options.get("weight", 1.0)
    assert after.most == options.get("max_outstanding", 0)
    assert [card["id"] for card in after.cards or ()] == options.get("models", ["m1"])
    assert (after in scene.fleet.pools["m1"].ready) is ("models" not in options)


def test_another_address_is_another_replica(scene: Scene) -> None:
    before = named(scene.fleet, "a")
    scene.apply(replica_settings("a", url="http://elsewhere.invalid:1"), "b")
    after = named(scene.fleet, "a")
    assert after is not before
    assert (after.settings.url, after.state) == ("http://elsewhere.invalid:1", State.LOADING)


def test_who_needs_a_name_that_is_in_use_joins_when_it_is_free(scene: Scene) -> None:
    scene.have("a", 1)
    moved = replica_settings("a", url="http://elsewhere.invalid:1")
    scene.apply(moved, "b")
    assert scene.names == ["a", "b"]
    assert named(scene.fleet, "a").duty is Duty.REMOVED
    scene.have("a", 0)
    assert named(scene.fleet, "a").settings == moved


def test_a_later_list_forgets_who_waited(scene: Scene) -> None:
    scene.have("a", 1)
    scene.apply(replica_settings("a", url="http://elsewhere.invalid:1"), "b")
    scene.apply("b")
    scene.have("a", 0)
    assert scene.names == ["b"]


def test_who_goes_at_once_lets_nobody_of_an_older_list_in(scene: Scene) -> None:
    scene.have("a", 1)
    scene.apply(replica_settings("a", url="http://b.invalid:8000"), "b")
    scene.apply("a", "c")
    assert scene.names == ["a", "c"]
    assert named(scene.fleet, "a").settings.url == "http://a.invalid:8000"


def test_two_that_change_places_both_come_back(scene: Scene) -> None:
    scene.have("a", 1)
    swapped = [
        replica_settings("a", url="http://b.invalid:8000"),
        replica_settings("b", url="http://a.invalid:8000"),
    ]
    scene.apply(*swapped)
    scene.have("a", 0)
    assert {replica.name: replica.settings for replica in scene.fleet} == {one.name: one for one in swapped}


def test_who_is_leaving_stays_when_it_is_listed_again(scene: Scene) -> None:
    leaving = scene.have("a", 1)
    scene.apply("b")
    scene.apply("a", "b")
    assert (leaving.state, named(scene.fleet, "a")) == (State.READY, leaving)
    scene.have("a", 0)
    assert scene.names == ["a", "b"]


def test_who_an_operator_drained_stays_drained(scene: Scene) -> None:
    drained = named(scene.fleet, "a")
    scene.fleet.drain(drained)
    scene.apply(replica_settings("a", weight=2.0), "b")
    assert (drained.duty, drained.weight) == (Duty.DRAINING, 2.0)


def test_who_an_operator_removed_comes_back(scene: Scene) -> None:
    scene.fleet.remove(named(scene.fleet, "a"))
    scene.apply("a", "b")
    assert sorted(scene.names) == ["a", "b"]


def test_who_came_through_the_admin_api_is_left_alone(scene: Scene) -> None:
    guest = scene.fleet.add(replica_settings("c", weight=5.0))
    scene.apply("a")
    assert scene.names == ["a", "c"]
    scene.apply("a", replica_settings("c", weight=1.0))
    scene.apply("a", replica_settings("d", url="http://c.invalid:8000"))
    scene.apply("a")
    assert scene.names == ["a", "c"]
    assert (guest.origin, guest.weight, guest.duty) == ("admin", 5.0, Duty.ACTIVE)


def test_a_limit_for_each_holds_for_those_without_their_own(scene: Scene) -> None:
    scene.apply("a", replica_settings("b", max_outstanding=9))
    scene.fleet.limit_each(4)
    scene.apply("a", replica_settings("b", max_outstanding=9), "c")
    assert [(replica.name, replica.most) for replica in scene.fleet] == [("a", 4), ("b", 9), ("c", 4)]
    scene.apply("a", "b", "c")
    assert named(scene.fleet, "b").most == 4
    assert all(pool.bounded for pool in scene.fleet.pools.values())
