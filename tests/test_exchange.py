"""The record of one request."""

from replicarouter.exchange import UNSETTLED, Stage
from tests.scene import an_exchange


def test_success_is_never_assumed() -> None:
    exchange = an_exchange()

    assert exchange.outcome == UNSETTLED
    assert (exchange.status, exchange.replica, exchange.model, exchange.attempts) == (0, "", "", 0)
    assert (exchange.received_at, exchange.leased_at, exchange.sent_at, exchange.head_at) == (0, 0, 0, 0)


def test_a_request_begins_by_being_received() -> None:
    assert an_exchange().stage is Stage.RECEIVING


def test_stages_are_called_as_the_metrics_call_them() -> None:
    assert [stage.label for stage in Stage] == ["connecting", "sent", "streaming", "receiving", "queued"]


def test_exchanges_are_told_apart_by_identity() -> None:
    one, other = an_exchange(), an_exchange()

    assert one != other
    assert len({one, other}) == 2
