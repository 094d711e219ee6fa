"""What the router believes of replicas, as the page says it."""

from collections.abc import Callable

import pytest

from replicarouter.exchange import Stage
from replicarouter.fleet.lifecycle import Event, State
from tests.scene import a_fleet, an_exchange, replica_settings
from tests.telemetry.conftest import Watched


@pytest.mark.parametrize("state", [State.LOADING, State.READY, State.UNHEALTHY])
def test_a_replica_is_in_one_state(watch: Callable[..., Watched], state: State) -> None:
    watched = watch(a_fleet("a", ready=False))
    (replica,) = watched.fleet
    if state is not State.LOADING:
        watched.fleet.tell(replica, Event.PASSED, "")
    if state is State.UNHEALTHY:
        watched.fleet.tell(replica, Event.FAILED, "")

    states = watched.samples("replica_state")
    assert {name for (_, name), value in states.items() if value} == {state.value}
    assert {name for _, name in states} == {"loading", "ready", "unhealthy", "ejected", "draining"}


def test_what_was_configured_is_told(watch: Callable[..., Watched]) -> None:
    settings = replica_settings("a", weight=2.5, max_num_seqs=16), replica_settings("b", max_outstanding=4)
    watched = watch(a_fleet(*settings, most=20))

    assert watched.samples("replica_weight") == {("a",): 2.5, ("b",): 1}
    assert watched.samples("replica_outstanding_limit") == {("a",): 20, ("b",): 4}
    assert watched.samples("replica_max_num_seqs") == {("a",): 16}


def test_a_stalled_replica_is_told(watched: Watched) -> None:
    first, _ = watched.fleet
    first.stalled = True
    assert watched.samples("replica_stalled") == {("a",): 1, ("b",): 0}


def test_silence_is_told_of_every_replica(watched: Watched) -> None:
    sent = an_exchange(replica="b", stage=Stage.SENT, sent_at=watched.clock() - 4)
    watched.fleet.ledger.in_flight["u"] = sent
    assert watched.samples("replica_silence_seconds") == {("a",): 0, ("b",): 4}


def test_ejections_are_told_by_reason(full: Watched) -> None:
    assert full.samples("ejections_total") == {("http_500", "a"): 1}
