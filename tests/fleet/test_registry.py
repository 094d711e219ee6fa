"""The fleet: pools by model, who is in them, and what the answer is when nobody is."""

import logging

import pytest

from replicarouter.errors import InvalidRequest, ModelNotFound, NoReplica
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event, IllegalMove, State
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica
from tests.scene import a_fleet, named, replica_settings


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


def test_who_waits_for_room_hears_of_a_replica_that_becomes_ready() -> None:
    fleet = a_fleet("a", ready=False)
    heard: list[Replica] = []
    fleet.on_ready = heard.append
    replica = named(fleet, "a")

    fleet.tell(replica, Event.PASSED, "first")
    fleet.tell(replica, Event.PASSED, "again")
    fleet.tell(replica, Event.FAILED, "gone")
    fleet.tell(replica, Event.PASSED, "back")

    assert heard == [replica, replica]


def test_an_illegal_move_changes_nothing() -> None:
    fleet = a_fleet("a")
    replica = named(fleet, "a")
    replica.state = State.DRAINING
    with pytest.raises(IllegalMove):
        fleet.tell(replica, Event.PASSED, "no")
    assert replica.state is State.DRAINING


def test_a_pool_says_its_role() -> None:
    assert Pool("m1").role == "both"
