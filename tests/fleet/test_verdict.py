"""When the router is what holds requests back."""

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import HELD_TOO_LONG
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.verdict import proxy_limited
from tests.scene import a_fleet, an_exchange

NOW, FRESH = 100.0, 3.0


def verdict(fleet: Fleet) -> bool:
    return proxy_limited(fleet.ledger, fleet, NOW, fresh=FRESH)


def read(fleet: Fleet, *waiting: float | None, at: float = NOW) -> None:
    for replica, count in zip(fleet, waiting, strict=True):
        replica.take(EngineReading(running=1, waiting=count), at)


@pytest.fixture
def held() -> Fleet:
    """Two ready replicas, and a request that has been held for too long."""
    fleet = a_fleet("a", "b")
    fleet.ledger.hold(an_exchange(), NOW - HELD_TOO_LONG - 0.01)
    return fleet


def test_holding_a_request_while_an_engine_has_nothing_waiting_is_proxy_limited(held: Fleet) -> None:
    read(held, 5, 0)
    assert verdict(held)


def test_engines_that_are_all_full_explain_the_hold(held: Fleet) -> None:
    read(held, 5, 1)
    assert not verdict(held)


def test_a_short_hold_is_nothing() -> None:
    fleet = a_fleet("a", "b")
    fleet.ledger.hold(an_exchange(), NOW - HELD_TOO_LONG)
    read(fleet, 0, 0)
    assert not verdict(fleet)


def test_holding_nothing_is_nothing() -> None:
    fleet = a_fleet("a", "b")
    read(fleet, 0, 0)
    assert not verdict(fleet)


def test_an_engine_that_says_nothing_proves_nothing(held: Fleet) -> None:
    assert not verdict(held)
    read(held, None, None)
    assert not verdict(held)


def test_an_old_reading_proves_nothing(held: Fleet) -> None:
    read(held, 0, 0, at=NOW - FRESH - 0.01)
    assert not verdict(held)


def test_a_replica_that_is_not_ready_proves_nothing(held: Fleet) -> None:
    read(held, 5, 0)
    held.tell(held.replicas[1], Event.FAILED, "gone")
    assert not verdict(held)
