"""The record of one request."""

from replicarouter.exchange import CLIENT_GONE, OK, UNSETTLED, Stage
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


def test_comments_are_no_word_of_the_engine() -> None:
    exchange = an_exchange(last_byte_at=5.0)
    for now in (6.0, 7.0):
        exchange.note_comment(now)
        exchange.last_byte_at = now
        assert exchange.last_word_at == 5.0
    exchange.last_byte_at = 8.0
    assert exchange.last_word_at == 8.0
    exchange.note_comment(9.0)
    exchange.last_byte_at = 9.0
    assert exchange.last_word_at == 8.0


def test_a_client_that_leaves_ends_only_what_had_no_end_yet() -> None:
    exchange, ended = an_exchange(), an_exchange(outcome=OK)
    for one in (exchange, ended):
        one.left()
    assert (exchange.outcome, ended.outcome) == (CLIENT_GONE, OK)
