"""Where requests are, as the page says it."""

from collections.abc import Callable

from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING
from tests.scene import a_fleet, an_exchange
from tests.telemetry.conftest import Watched


def test_gauges_exist_at_zero_for_every_replica_stage_and_model(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet("a", "b", models=("m1", "m2")))

    assert watched.samples("requests_queued") == {("m1",): 0, ("m2",): 0}
    assert watched.samples("requests_outstanding") == {
        (replica, stage): 0 for replica in "ab" for stage in ("connecting", "sent", "streaming")
    }
    assert watched.samples("requests_receiving") == {(): 0}


def test_counts_are_read_from_the_ledger(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    _, second = watched.fleet
    ledger.cells[second.row + Stage.CONNECTING] = 1
    ledger.cells[second.row + Stage.SENT] = 2
    ledger.cells[second.row + Stage.STREAMING] = 3
    ledger.cells[second.row + OUTSTANDING] = 6
    ledger.receiving = 4
    ledger.queued["m1"] = 6

    outstanding = watched.samples("requests_outstanding")
    assert [outstanding["b", stage] for stage in ("connecting", "sent", "streaming")] == [1, 2, 3]
    assert watched.samples("requests_receiving") == {(): 4}
    assert watched.samples("requests_queued") == {("m1",): 6}


def test_requests_that_wait_for_a_model_without_replicas_are_counted(watched: Watched) -> None:
    """Else the stages would not add up to what was received and has not ended."""
    watched.fleet.ledger.queued.update({"gone": 2, "long gone": 0})
    assert watched.samples("requests_queued") == {("m1",): 0, ("gone",): 2}


def test_received_counts_what_is_in_flight_too(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    ledger.in_flight["u"] = an_exchange()
    ledger.arrived.add(("/v1/chat/completions",), 3)
    ledger.finished.add(("/v1/chat/completions", "m1", "a", "ok"), 2)

    assert watched.samples("requests_received_total") == {("/v1/chat/completions",): 3}
    assert watched.samples("requests_total") == {("/v1/chat/completions", "m1", "ok", "a"): 2}
