"""The fleet: pools by model, who is in them, and what the answer is when nobody is."""

import logging

import pytest

from replicarouter.errors import InvalidRequest, ModelNotFound, NoReplica, ReplicaExists, UnknownReplica
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.lifecycle import Duty, Event, IllegalMove, State
from replicarouter.fleet.registry import QUIET, Fleet, FleetListener, Pool
from replicarouter.fleet.replica import Replica
from tests.scene import a_fleet, an_exchange, named, replica_settings


class Hearing(FleetListener):
    """Writes down what a listener is told, as (what, name)."""

    def __init__(self, fleet: Fleet) -> None:
        self.heard: list[tuple[str, str]] = []
        fleet.listeners.append(self)

    def ready(self, replica: Replica) -> None:
        self.heard.append(("ready", replica.name))

    def added(self, replica: Replica) -> None:
        self.heard.append(("added", replica.name))

    def removed(self, replica: Replica) -> None:
        self.heard.append(("removed", replica.name))


def occupy(replica: Replica, count: int) -> None:
    replica.cells[replica.row + Stage.STREAMING] = count
    replica.cells[replica.row + OUTSTANDING] = count


def names(replicas: list[Replica]) -> list[str]:
    return [replica.name for replica in replicas]


def members(fleet: Fleet) -> dict[str, tuple[list[str], list[str]]]:
    """By model: the names of all replicas, and of the ready ones."""
    return {model: (names(pool.replicas), names(pool.ready)) for model, pool in fleet.pools.items()}


def test_replicas_come_in_the_order_of_the_settings() -> None:
    assert [replica.name for replica in a_fleet("c", "a", "b")] == ["c", "a", "b"]


def test_a_pool_forms_when_a_replica_lists_its_models() -> None:
    fleet = a_fleet("a", models=(), ready=False)
    assert members(fleet) == {}
    assert not fleet.all_listed

    fleet.list_models(named(fleet, "a"), [{"id": "m1"}, {"id": "m2"}])

    assert members(fleet) == {"m1": (["a"], []), "m2": (["a"], [])}
    assert fleet.all_listed


def test_configured_models_form_pools_at_once() -> None:
    fleet = Fleet([replica_settings("a", models=["m1", "m2"])], Ledger())

    assert members(fleet) == {"m1": (["a"], []), "m2": (["a"], [])}
    assert fleet.model_cards()["m1"] == {"id": "m1", "object": "model", "owned_by": "replicarouter"}
    assert fleet.all_listed


def test_only_ready_replicas_are_candidates() -> None:
    fleet = a_fleet("a", "b", "c")
    assert members(fleet) == {"m1": (["a", "b", "c"], ["a", "b", "c"])}

    fleet.tell(named(fleet, "b"), Event.FAILED, "no answer")
    assert members(fleet) == {"m1": (["a", "b", "c"], ["a", "c"])}

    fleet.tell(named(fleet, "b"), Event.PASSED, "probes pass")
    assert members(fleet) == {"m1": (["a", "b", "c"], ["a", "b", "c"])}


def test_replicas_of_several_models_are_in_several_pools() -> None:
    fleet = a_fleet("a", "b", models=())
    fleet.list_models(named(fleet, "a"), [{"id": "base"}, {"id": "adapter"}])
    fleet.list_models(named(fleet, "b"), [{"id": "base"}])

    assert members(fleet) == {"base": (["a", "b"], ["a", "b"]), "adapter": (["a"], ["a"])}


def test_a_model_that_nobody_lists_any_more_loses_its_pool() -> None:
    fleet = a_fleet("a", models=("m1", "m2"))
    fleet.list_models(named(fleet, "a"), [{"id": "m2"}])

    assert members(fleet) == {"m2": (["a"], ["a"])}
    with pytest.raises(ModelNotFound):
        fleet.pool_for("m1")


def test_a_pool_stays_the_same_object_while_its_members_change() -> None:
    fleet = a_fleet("a", "b")
    pool = fleet.pool_for("m1")
    fleet.tell(named(fleet, "a"), Event.FAILED, "gone")
    fleet.list_models(named(fleet, "b"), [{"id": "m1"}, {"id": "m2"}])

    assert fleet.pool_for("m1") is pool
    assert names(pool.ready) == ["b"]


def test_what_a_pool_offers_does_not_change_under_who_reads_it() -> None:
    fleet = a_fleet("a", "b")
    seen = fleet.pool_for("m1").ready
    fleet.tell(named(fleet, "a"), Event.FAILED, "gone")

    assert names(seen) == ["a", "b"]


def test_a_model_listed_twice_counts_once() -> None:
    fleet = a_fleet("a", models=("m1", "m1"))

    assert members(fleet) == {"m1": (["a"], ["a"])}


def test_a_pool_is_bounded_when_one_of_its_replicas_is() -> None:
    free, full = replica_settings("a"), replica_settings("b", max_outstanding=3)

    assert not a_fleet(free).pool_for("m1").bounded
    assert a_fleet(free, full).pool_for("m1").bounded
    assert a_fleet(free, most=1).pool_for("m1").bounded


# Which pool a request goes to


def test_a_model_has_its_pool() -> None:
    fleet = a_fleet("a", models=("m1", "m2"))
    assert fleet.pool_for("m2").model == "m2"


def test_without_a_model_the_only_pool_serves() -> None:
    assert a_fleet("a", "b").pool_for(None).model == "m1"


def test_without_a_model_several_pools_are_too_many() -> None:
    with pytest.raises(InvalidRequest) as refused:
        a_fleet("a", models=("m1", "m2")).pool_for(None)
    assert refused.value.param == "model"


def test_an_unknown_model_is_unknown_once_everybody_has_listed() -> None:
    fleet = a_fleet("a", "b", models=())
    fleet.list_models(named(fleet, "a"), [{"id": "m1"}])
    with pytest.raises(NoReplica):
        fleet.pool_for("m2")

    fleet.list_models(named(fleet, "b"), [{"id": "m1"}])
    with pytest.raises(ModelNotFound) as refused:
        fleet.pool_for("m2")
    assert refused.value.param == "model"
    assert "'m2'" in refused.value.message


def test_before_anybody_has_listed_there_is_no_replica() -> None:
    fleet = a_fleet("a", models=())
    for model in ("m1", None):
        with pytest.raises(NoReplica):
            fleet.pool_for(model)


def test_a_pool_without_a_ready_replica_is_a_pool() -> None:
    fleet = a_fleet("a", ready=False)
    assert fleet.pool_for("m1").ready == []


@pytest.mark.parametrize("model", ["", "x" * 10_000, "line\nbreak", "\ud800", 'quote"', "ü"])
def test_any_text_may_be_an_unknown_model(model: str) -> None:
    with pytest.raises(ModelNotFound) as refused:
        a_fleet("a").pool_for(model)
    assert len(refused.value.message) < 300
    assert refused.value.message.isprintable()
    refused.value.message.encode()


# What is listed


def test_each_model_is_listed_once_as_its_first_replica_describes_it() -> None:
    fleet = a_fleet("a", "b", models=())
    fleet.list_models(named(fleet, "b"), [{"id": "m1", "from": "b"}, {"id": "m2", "from": "b"}])
    fleet.list_models(named(fleet, "a"), [{"id": "m1", "from": "a", "root": "/models/m1"}])

    assert fleet.model_cards() == {
        "m1": {"id": "m1", "from": "a", "root": "/models/m1"},
        "m2": {"id": "m2", "from": "b"},
    }


def test_the_models_of_an_unhealthy_replica_stay_listed() -> None:
    fleet = a_fleet("a")
    fleet.tell(named(fleet, "a"), Event.FAILED, "gone")
    assert list(fleet.model_cards()) == ["m1"]


# States


def test_a_move_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_fleet("a")
    with caplog.at_level(logging.INFO):
        fleet.tell(named(fleet, "a"), Event.FAILED, "refuses connections")
        fleet.tell(named(fleet, "a"), Event.FAILED, "still refuses")

    (record,) = caplog.records
    facts = {key: record.__dict__[key] for key in ("replica", "from", "to", "why")}
    assert facts == {"replica": "a", "from": "ready", "to": "unhealthy", "why": "refuses connections"}
    assert record.levelno == logging.WARNING


def test_the_last_reason_is_kept_for_people() -> None:
    fleet = a_fleet("a")
    replica = named(fleet, "a")
    fleet.tell(replica, Event.FAILED, "first")
    fleet.tell(replica, Event.FAILED, "second")
    assert (replica.state, replica.why) == (State.UNHEALTHY, "second")


def test_listeners_hear_of_a_replica_that_becomes_ready() -> None:
    fleet = a_fleet("a", ready=False)
    hearing = Hearing(fleet)
    replica = named(fleet, "a")

    fleet.tell(replica, Event.PASSED, "first")
    fleet.tell(replica, Event.PASSED, "again")
    fleet.tell(replica, Event.FAILED, "gone")
    fleet.tell(replica, Event.PASSED, "back")

    assert hearing.heard == [("ready", "a"), ("ready", "a")]


class Missing(FleetListener):
    """Writes down whom it is told to have lost, and whether their pool had lost them by then."""

    def __init__(self, fleet: Fleet) -> None:
        self.pool = fleet.pool_for("m1")
        self.lost_ones: list[tuple[str, bool]] = []
        fleet.listeners.append(self)

    def lost(self, replica: Replica) -> None:
        self.lost_ones.append((replica.name, replica not in self.pool.ready))


def test_listeners_hear_once_of_a_replica_that_is_ready_no_more() -> None:
    fleet = a_fleet("a", "b", "c", "d")
    missing = Missing(fleet)
    a, b, c, d = fleet.replicas

    for why in ("gone", "still gone"):
        fleet.tell(a, Event.FAILED, why)
    fleet.tell(b, Event.EJECTED, "fails")
    fleet.drain(c)
    fleet.tell(c, Event.FAILED, "gone")
    fleet.remove(d)
    fleet.remove(c)

    assert missing.lost_ones == [("a", True), ("b", True), ("c", True), ("d", True)]


def test_an_illegal_move_changes_nothing() -> None:
    fleet = a_fleet("a")
    replica = named(fleet, "a")
    with pytest.raises(IllegalMove):
        fleet.tell(replica, Event.RETURNED, "no")
    assert replica.state is State.READY


def test_a_pool_says_its_role() -> None:
    assert Pool("m1").role == "both"


# Who is in the fleet


def test_a_replica_is_found_by_its_name() -> None:
    fleet = a_fleet("a", "b")
    assert fleet.find("b") is fleet.replicas[1]


@pytest.mark.parametrize("name", ["c", "", "a ", "x" * 10_000, "line\nbreak"])
def test_a_name_that_nobody_has_is_unknown(name: str) -> None:
    with pytest.raises(UnknownReplica) as refused:
        a_fleet("a", "b").find(name)
    assert (refused.value.status, refused.value.code) == (404, "unknown_replica")
    assert len(refused.value.message) < 300
    assert refused.value.message.isprintable()


def test_who_is_added_is_asked_before_it_gets_requests() -> None:
    fleet = a_fleet("a")
    hearing = Hearing(fleet)
    added = fleet.add(replica_settings("b", models=["m1"]))

    assert fleet.find("b") is added
    assert (added.state, added.origin, fleet.find("a").origin) == (State.LOADING, "admin", "file")
    assert members(fleet) == {"m1": (["a", "b"], ["a"])}
    assert hearing.heard == [("added", "b")]

    fleet.tell(added, Event.PASSED, "probes pass")
    assert members(fleet) == {"m1": (["a", "b"], ["a", "b"])}


def test_who_is_added_has_the_limit_of_all() -> None:
    fleet = a_fleet("a", most=3)
    assert fleet.add(replica_settings("b")).most == 3


@pytest.mark.parametrize(
    "taken",
    [
        {"name": "a", "url": "http://new.invalid:1"},
        {"name": "new", "url": "http://a.invalid:8000"},
        {"name": "new", "url": "HTTP://A.invalid:8000/"},
    ],
)
def test_a_name_or_an_address_is_taken_once(taken: dict[str, str]) -> None:
    fleet = a_fleet("a", "b")
    with pytest.raises(ReplicaExists) as refused:
        fleet.add(replica_settings(**taken))
    assert (refused.value.status, refused.value.code) == (409, "replica_exists")
    assert "'a'" in refused.value.message
    assert names(fleet.replicas) == ["a", "b"]


def test_a_draining_replica_gets_nothing_new_and_is_not_forgotten() -> None:
    fleet = a_fleet("a", "b")
    replica = fleet.find("a")
    fleet.drain(replica)

    assert (replica.state, replica.health, replica.duty) == (State.DRAINING, State.READY, Duty.DRAINING)
    assert members(fleet) == {"m1": (["a", "b"], ["b"])}
    assert list(fleet.model_cards()) == ["m1"]


def test_the_health_of_a_draining_replica_is_still_watched() -> None:
    fleet = a_fleet("a", "b")
    hearing = Hearing(fleet)
    replica = fleet.find("a")
    fleet.drain(replica)
    fleet.tell(replica, Event.FAILED, "gone")
    fleet.tell(replica, Event.PASSED, "back")
    assert (replica.state, replica.health, hearing.heard) == (State.DRAINING, State.READY, [])

    fleet.tell(replica, Event.FAILED, "gone")
    fleet.undrain(replica)
    assert (replica.state, members(fleet)) == (State.UNHEALTHY, {"m1": (["a", "b"], ["b"])})


def test_who_is_undrained_gets_requests_again_and_listeners_hear_of_it() -> None:
    fleet = a_fleet("a")
    hearing = Hearing(fleet)
    replica = fleet.find("a")
    fleet.drain(replica)
    fleet.undrain(replica)
    fleet.undrain(replica)

    assert replica.state is State.READY
    assert members(fleet) == {"m1": (["a"], ["a"])}
    assert hearing.heard == [("ready", "a")]


def test_an_idle_replica_is_removed_at_once() -> None:
    fleet = a_fleet("a", "b")
    hearing = Hearing(fleet)
    replica = fleet.find("a")

    assert fleet.remove(replica)
    assert replica not in fleet
    assert members(fleet) == {"m1": (["b"], ["b"])}
    assert hearing.heard == [("removed", "a")]
    with pytest.raises(UnknownReplica):
        fleet.find("a")


def test_a_busy_replica_is_removed_with_its_last_request() -> None:
    fleet = a_fleet("a", "b")
    hearing = Hearing(fleet)
    replica = fleet.find("a")
    occupy(replica, 2)

    assert not fleet.remove(replica)
    assert (replica.state, replica.duty) == (State.DRAINING, Duty.REMOVED)
    assert members(fleet) == {"m1": (["a", "b"], ["b"])}

    occupy(replica, 1)
    fleet.idle(replica)
    assert replica in fleet
    occupy(replica, 0)
    fleet.idle(replica)
    fleet.idle(replica)
    assert replica not in fleet
    assert hearing.heard == [("removed", "a")]


def test_idleness_of_who_is_to_stay_changes_nothing() -> None:
    fleet = a_fleet("a", "b")
    fleet.drain(fleet.find("b"))
    for replica in fleet:
        fleet.idle(replica)
    assert names(fleet.replicas) == ["a", "b"]


def test_who_is_about_to_leave_can_be_kept() -> None:
    fleet = a_fleet("a")
    replica = fleet.find("a")
    occupy(replica, 1)
    fleet.remove(replica)
    fleet.undrain(replica)
    occupy(replica, 0)
    fleet.idle(replica)

    assert (replica in fleet, replica.state) == (True, State.READY)


def test_the_name_of_who_is_about_to_leave_is_still_taken() -> None:
    fleet = a_fleet("a", "b")
    occupy(fleet.find("a"), 1)
    fleet.remove(fleet.find("a"))
    with pytest.raises(ReplicaExists, match="last requests"):
        fleet.add(replica_settings("a"))


def test_who_has_left_is_not_moved_by_what_was_still_being_asked() -> None:
    fleet = a_fleet("a", "b")
    replica = fleet.find("a")
    fleet.remove(replica)
    fleet.tell(replica, Event.FAILED, "late")
    fleet.list_models(replica, [{"id": "m9"}])

    assert replica.health is State.READY
    assert list(fleet.pools) == ["m1"]


def test_a_request_that_holds_a_pool_that_is_gone_finds_nobody_in_it() -> None:
    fleet = a_fleet("a")
    pool = fleet.pool_for("m1")
    fleet.remove(fleet.find("a"))

    assert (pool.replicas, pool.ready) == ([], [])
    with pytest.raises(ModelNotFound):
        fleet.pool_for("m1")


def test_who_goes_through_the_replicas_is_not_disturbed_by_changes() -> None:
    fleet = a_fleet("a", "b", "c")
    seen = []
    for replica in fleet:
        seen.append(replica.name)
        fleet.remove(replica)
        fleet.add(replica_settings(f"{replica.name}{replica.name}"))
    assert (seen, names(fleet.replicas)) == (["a", "b", "c"], ["aa", "bb", "cc"])


def test_rows_are_used_again() -> None:
    fleet = a_fleet("a")
    size = len(fleet.ledger.cells)
    for turn in range(1000):
        fleet.remove(fleet.add(replica_settings(f"n{turn}")))

    assert len(fleet.ledger.cells) == size + size
    assert len(fleet.ledger.connections) == 2


def test_a_pool_with_somebody_on_trial_is_bounded() -> None:
    fleet = a_fleet("a", "b")
    fleet.find("a").begin_trial()
    fleet.regroup()
    assert fleet.pool_for("m1").bounded


def test_who_is_to_be_removed_is_not_asked_while_it_delivers() -> None:
    fleet = a_fleet("a")
    replica = named(fleet, "a")
    occupy(replica, 1)
    exchange = an_exchange(replica="a", last_byte_at=100.0)
    fleet.ledger.in_flight["x"] = exchange
    assert not fleet.leaves_alone(replica, 100.0)
    fleet.remove(replica)
    assert fleet.leaves_alone(replica, 100.0 + QUIET)
    assert not fleet.leaves_alone(replica, 100.1 + QUIET)
    fleet.undrain(replica)
    assert not fleet.leaves_alone(replica, 100.0)


def test_cards_that_are_written_anew_for_every_answer_do_not_form_the_pools_anew() -> None:
    fleet = a_fleet("a", "b")
    pools = fleet.pools
    fleet.list_models(named(fleet, "a"), [{"id": "m1", "created": 1}])
    assert fleet.pools is pools
    assert fleet.model_cards()["m1"]["created"] == 1
