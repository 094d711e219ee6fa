"""What the router lets in and what it makes wait, as the page says it."""

from replicarouter.engines.base import EngineReading
from replicarouter.settings import AdmissionSettings
from tests.scene import an_exchange
from tests.telemetry.conftest import Watched


def test_a_router_in_which_nothing_waits_says_so(watched: Watched) -> None:
    for name in ("connector_waiting", "proxy_limited", "held_seconds"):
        assert watched.samples(name) == {(): 0}
    assert watched.samples("connector_connections") == {
        (replica, state): 0 for replica in "ab" for state in ("busy", "idle")
    }


def test_connections_are_busy_or_idle(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    _, second = watched.fleet
    ledger.waiting_for_slot = 5
    ledger.connections_of(second.row).open = 9
    ledger.connections_of(second.row).busy = 7

    assert watched.samples("connector_limit") == {(): 2048}
    assert watched.samples("connector_limit_per_replica") == {(): 300}
    assert watched.samples("connector_waiting") == {(): 5}
    assert watched.samples("connector_connections") == {
        ("a", "busy"): 0,
        ("a", "idle"): 0,
        ("b", "busy"): 7,
        ("b", "idle"): 2,
    }


def test_a_connection_that_closes_under_a_request_is_not_idle(watched: Watched) -> None:
    counts = watched.fleet.ledger.connections_of(0)
    counts.open, counts.busy = 0, 1
    assert watched.samples("connector_connections")["a", "idle"] == 0


def test_connections_of_clients_are_told(watched: Watched) -> None:
    assert watched.samples("client_connections") == {(): 7}


def test_the_limits_of_the_queue_are_those_in_force(watched: Watched) -> None:
    assert watched.samples("queue_limit") == {(): 10000}
    assert watched.samples("queue_timeout_seconds") == {(): 60}

    watched.admission = AdmissionSettings(max_queued=5, queue_timeout=0.5)
    assert watched.samples("queue_limit") == {(): 5}
    assert watched.samples("queue_timeout_seconds") == {(): 0.5}


def test_the_longest_wait_is_told_whether_or_not_it_limits(watched: Watched) -> None:
    longest, later = an_exchange(), an_exchange()
    watched.fleet.ledger.hold(longest, watched.clock() - 2.5)
    watched.fleet.ledger.hold(later, watched.clock() - 1)
    assert watched.samples("held_seconds") == {(): 2.5}
    assert watched.samples("proxy_limited") == {(): 0}

    watched.fleet.ledger.let_go(longest)
    assert watched.samples("held_seconds") == {(): 1}


def test_a_held_request_beside_an_idle_engine_is_proxy_limited(watched: Watched) -> None:
    for replica in watched.fleet:
        replica.take(EngineReading(running=1, waiting=0), watched.clock())
    watched.fleet.ledger.hold(an_exchange(), watched.clock() - 1)

    assert watched.samples("proxy_limited") == {(): 1}
