"""For how long a replica has said nothing to requests that wait for it."""

from replicarouter.exchange import Stage
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import OwnFloor
from replicarouter.telemetry.silences import silences
from tests.scene import a_fleet, an_exchange, named

NOW = 1000.0


def fleet_with(**exchanges: dict[str, object]) -> Fleet:
    """A fleet of a and b; the exchanges are with a unless they say otherwise."""
    fleet = a_fleet("a", "b")
    for name, fields in exchanges.items():
        fleet.ledger.in_flight[name] = an_exchange(**{"replica": "a", "stage": Stage.STREAMING, **fields})
    return fleet


def told(fleet: Fleet) -> dict[str, float]:
    return silences(fleet, OwnFloor(fleet, 0.0).works(), NOW)


def test_a_replica_that_owes_nothing_is_not_silent() -> None:
    assert told(fleet_with()) == {"a": 0, "b": 0}


def test_the_newest_byte_over_all_its_requests_counts() -> None:
    fleet = fleet_with(
        old={"sent_at": NOW - 60, "last_byte_at": NOW - 50},
        new={"sent_at": NOW - 40, "last_byte_at": NOW - 7},
        others={"replica": "b", "sent_at": NOW - 3},
    )
    assert told(fleet) == {"a": 7, "b": 3}


def test_a_request_that_has_just_come_begins_the_silence_anew() -> None:
    fleet = fleet_with(
        old={"sent_at": NOW - 60, "last_byte_at": NOW - 50}, new={"stage": Stage.SENT, "sent_at": NOW - 2}
    )
    assert told(fleet)["a"] == 2


def test_a_byte_to_a_request_that_has_ended_counts_while_another_waits() -> None:
    fleet = fleet_with(waiting={"stage": Stage.SENT, "sent_at": NOW - 60})
    named(fleet, "a").heard_at = NOW - 5
    named(fleet, "b").heard_at = NOW - 5
    assert told(fleet) == {"a": 5, "b": 0}


def test_requests_that_the_replica_has_not_got_or_cannot_go_on_with_do_not_count() -> None:
    fleet = fleet_with(
        connecting={"stage": Stage.CONNECTING},
        queued={"stage": Stage.QUEUED, "replica": ""},
        held={"sent_at": NOW - 60, "last_byte_at": NOW - 50, "held": True},
    )
    assert told(fleet) == {"a": 0, "b": 0}


def test_a_comment_is_no_byte_of_an_answer() -> None:
    commented = {"commented_at": NOW - 1, "commented_after": NOW - 30, "last_byte_at": NOW - 1}
    fleet = fleet_with(waiting={"sent_at": NOW - 60, **commented})
    assert told(fleet)["a"] == 30
