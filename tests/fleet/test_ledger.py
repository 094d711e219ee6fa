"""Counts by stage, exchanges in flight, and how long the router itself holds any of them."""

from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING, ROW, Ledger
from tests.scene import an_exchange


def test_a_new_ledger_is_at_zero() -> None:
    ledger = Ledger()

    assert [ledger.total(stage) for stage in Stage] == [0, 0, 0, 0, 0]
    assert ledger.longest_hold(5.0) == 0
    assert list(ledger.oldest_first()) == []
    assert ledger.received() == {}


def test_each_replica_has_a_row_of_its_own() -> None:
    ledger = Ledger()
    rows = [ledger.add_row() for _ in range(3)]

    assert rows == [0, ROW, 2 * ROW]
    assert len(ledger.cells) == 3 * ROW
    assert ledger.connections_of(rows[1]) is not ledger.connections_of(rows[2])


def test_a_row_that_is_free_again_is_given_to_the_next() -> None:
    ledger = Ledger()
    rows = [ledger.add_row() for _ in range(3)]
    former = ledger.connections_of(rows[1])
    former.open = 2
    ledger.special.add(rows[1])
    ledger.free_row(rows[1])

    assert ledger.add_row() == rows[1]
    assert not ledger.special
    assert len(ledger.cells) == 3 * ROW
    assert ledger.connections_of(rows[1]).open == 0
    former.open -= 1
    assert ledger.connections_of(rows[1]).open == 0
    assert ledger.add_row() == 3 * ROW


def test_the_last_byte_is_the_latest_of_the_responses_of_one_replica() -> None:
    ledger = Ledger()
    for name, replica, at in (("u1", "a", 5.0), ("u2", "a", 7.0), ("u3", "b", 9.0), ("u4", "c", 0.0)):
        ledger.in_flight[name] = an_exchange(upstream_id=name, replica=replica, last_byte_at=at)

    assert [ledger.last_byte_from(name) for name in "abcd"] == [7.0, 9.0, 0.0, 0.0]


def test_a_stage_is_summed_over_the_fleet() -> None:
    ledger = Ledger()
    for count in (1, 2, 3):
        row = ledger.add_row()
        ledger.cells[row + Stage.CONNECTING] = count
        ledger.cells[row + Stage.SENT] = 10 * count
        ledger.cells[row + Stage.STREAMING] = 100 * count
        ledger.cells[row + OUTSTANDING] = 111 * count
    ledger.receiving = 7
    ledger.queued.update({"m1": 2, "m2": 3})

    assert {stage: ledger.total(stage) for stage in Stage} == {
        Stage.CONNECTING: 6,
        Stage.SENT: 60,
        Stage.STREAMING: 600,
        Stage.RECEIVING: 7,
        Stage.QUEUED: 5,
    }


def test_received_is_what_has_arrived_by_endpoint() -> None:
    ledger = Ledger()
    ledger.arrived.add(("/v1/chat/completions",), 5)
    ledger.arrived.add(("other",))
    ledger.arrived.add(("/v1/embeddings",), 2)

    assert ledger.received() == {"/v1/chat/completions": 5, "other": 1, "/v1/embeddings": 2}


def test_the_longest_hold_is_the_oldest_one_still_held() -> None:
    ledger = Ledger()
    first, second = an_exchange(), an_exchange()
    ledger.hold(first, 10.0)
    ledger.hold(second, 12.0)
    assert ledger.longest_hold(15.0) == 5.0

    ledger.let_go(first)
    assert ledger.longest_hold(15.0) == 3.0

    ledger.let_go(second)
    assert ledger.longest_hold(15.0) == 0


def test_letting_go_of_what_is_not_held_is_nothing() -> None:
    ledger = Ledger()
    ledger.let_go(an_exchange())
    assert ledger.longest_hold(1.0) == 0


def test_a_hold_that_begins_anew_counts_from_its_new_beginning() -> None:
    ledger = Ledger()
    exchange, other = an_exchange(), an_exchange()
    ledger.hold(exchange, 10.0)
    ledger.let_go(exchange)
    ledger.hold(other, 11.0)
    ledger.hold(exchange, 12.0)

    assert ledger.longest_hold(13.0) == 2.0


def test_exchanges_are_listed_in_the_order_of_arrival() -> None:
    ledger = Ledger()
    exchanges = [an_exchange(upstream_id=name) for name in "cab"]
    for exchange in exchanges:
        ledger.in_flight[exchange.upstream_id] = exchange

    listed = ledger.oldest_first()
    ledger.in_flight.clear()

    assert list(listed) == exchanges
