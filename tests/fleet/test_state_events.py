"""Every change of a replica is a line with its reason, and what is no change is none."""

import logging
from typing import Any

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.lifecycle import DUTIES, MOVES, Duty, Event, Order, State
from replicarouter.fleet.registry import Fleet
from tests.fleet.test_health import SETTINGS, Scene
from tests.scene import a_fleet, named, replica_settings

TAKEN_OUT = {State.UNHEALTHY, State.EJECTED}
WHY = "as somebody said"


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def told(caplog: pytest.LogCaptureFixture, *facts: str) -> list[tuple[Any, ...]]:
    """The lines so far: the event, and those of its facts."""
    lines = [
        (record.getMessage(), *(record.__dict__.get(fact) for fact in facts)) for record in caplog.records
    ]
    caplog.clear()
    return lines


@pytest.mark.parametrize(("state", "event"), [(state, event) for state in MOVES for event in MOVES[state]])
def test_every_move_is_told(state: State, event: Event, caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_fleet("a")
    replica = named(fleet, "a")
    replica.health = state
    caplog.clear()
    fleet.tell(replica, event, WHY)
    after = MOVES[state][event]
    if after is state:
        assert caplog.records == []
        return
    assert [record.levelno for record in caplog.records] == [
        logging.WARNING if after in TAKEN_OUT else logging.INFO
    ]
    assert told(caplog, "replica", "from", "to", "why") == [
        ("replica state changed", "a", state.value, after.value, WHY)
    ]


@pytest.mark.parametrize(("duty", "order"), [(duty, order) for duty in Duty for order in Order])
def test_every_order_that_changes_something_is_told(
    duty: Duty, order: Order, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = a_fleet("a", "b")
    replica = named(fleet, "a")
    replica.duty = duty
    replica.cells[replica.row + 3] = 2  # It has requests, so that it does not leave at once.
    caplog.clear()
    orders = {Order.DRAIN: fleet.drain, Order.UNDRAIN: fleet.undrain, Order.REMOVE: fleet.remove}
    orders[order](replica)
    after = DUTIES[duty][order]
    assert told(caplog, "replica", "from", "to", "why", "outstanding") == (
        []
        if after is duty
        else [("replica duty changed", "a", duty.value, after.value, f"told to {order.value}", 2)]
    )


def a_quiet_fleet(caplog: pytest.LogCaptureFixture) -> Fleet:
    fleet = a_fleet("a", "b")
    caplog.clear()
    return fleet


def test_a_replica_that_comes_and_goes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_quiet_fleet(caplog)
    added = fleet.add(replica_settings("c"))
    assert told(caplog, "replica", "origin") == [("replica added", "c", "admin")]
    fleet.change(added, replica_settings("c", weight=2))
    assert told(caplog, "replica") == [("replica changed", "c")]
    fleet.remove(added)
    assert told(caplog, "replica", "to") == [
        ("replica duty changed", "c", "removed"),
        ("replica removed", "c", None),
    ]


def test_models_that_come_and_go_are_told(caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_quiet_fleet(caplog)
    replica = named(fleet, "a")
    fleet.list_models(replica, [{"id": "m1", "created": 1}])
    assert told(caplog) == []
    fleet.list_models(replica, [{"id": "m1"}, {"id": "m2"}])
    fleet.list_models(replica, [])
    assert told(caplog, "replica", "models") == [
        ("replica models changed", "a", "m1, m2"),
        ("replica models changed", "a", ""),
    ]


def test_an_ejection_its_trial_and_its_end_are_told(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(a_fleet("a", "b"))
    caplog.clear()
    scene.fail("a", 3)
    scene.wait(3.5)
    scene.answer("a")
    lines = told(caplog, "replica", "to")
    assert lines == [
        ("replica state changed", "a", "ejected"),
        ("replica state changed", "a", "ready"),
        ("replica on trial", "a", None),
        ("replica trial over", "a", None),
    ]


def test_a_replica_that_its_pool_cannot_do_without_is_told_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(a_fleet("a"))
    caplog.clear()
    scene.fail("a", 50, reason="http_500")
    assert told(caplog, "replica", "reason", "why") == [
        ("replica not ejected", "a", "http_500", "its pool cannot do without it")
    ]


@pytest.mark.parametrize("state", [State.READY, State.UNHEALTHY])
def test_a_stall_and_its_end_are_told_whatever_its_probes_said(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(a_fleet("a", "b"), settings=SETTINGS)
    replica = scene["a"]
    running = scene.begin("a")
    if state is State.UNHEALTHY:
        scene.fleet.tell(replica, Event.FAILED, "probes fail")
    replica.probe_failing = True
    caplog.clear()
    scene.wait(31)
    why = "stalled: requests, but no byte and failed probes"
    event = "replica stalled" if state is State.UNHEALTHY else "replica state changed"
    assert told(caplog, "replica", "why") == [(event, "a", why)]
    running.exchange.last_byte_at = scene.clock()
    scene.wait(1)
    assert told(caplog, "replica") == [("replica stall over", "a")]


def test_requests_that_are_given_up_are_told(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(a_fleet("a", "b"), settings=SETTINGS)
    scene.begin("a").exchange.on_interrupt = lambda: True
    scene["a"].probe_failing = True
    scene.wait(121)
    assert ("requests of a stalled replica ended", "a", 1) in told(caplog, "replica", "count")


def test_a_reading_needs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_quiet_fleet(caplog)
    named(fleet, "a").take(EngineReading(running=1, waiting=0), 1.0)
    assert told(caplog) == []
