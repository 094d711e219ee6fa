"""Naming, counting and settling of requests."""

from random import Random

from multidict import CIMultiDict

from replicarouter.exchange import CLIENT_GONE, OK, Exchange, Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.protocol.traceparent import Tracing
from replicarouter.proxy.register import Register
from tests.scene import CHAT, HandClock


class Desk:
    """A register with its ledger, and what it has told of."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.clock = HandClock()
        self.observed: list[Exchange] = []
        tracing = Tracing(Random(1), start=True, ratio=1.0, record=False)
        self.register = Register(self.ledger, self.observed.append, self.clock, tracing)

    def open(self, given_id: str | None = None, **fields: str) -> Exchange:
        headers = CIMultiDict(fields if given_id is None else {"X-Request-Id": given_id, **fields})
        return self.register.open("POST", CHAT, CHAT, headers)


def test_a_request_is_in_flight_from_its_opening_to_its_settlement() -> None:
    desk = Desk()
    exchange = desk.open()
    assert list(desk.ledger.oldest_first()) == [exchange]
    assert desk.ledger.received() == {CHAT: 1}
    exchange.outcome = OK
    desk.clock.move(3)
    desk.register.settle(exchange)
    assert list(desk.ledger.oldest_first()) == []
    assert list(desk.ledger.finished) == [((CHAT, "", "", "ok"), 1)]
    assert desk.observed == [exchange]
    assert exchange.ended_at - exchange.accepted_at == 3


def test_ids_that_are_made_differ() -> None:
    desk = Desk()
    ids = {desk.open().client_id for _ in range(100)} | {desk.register.make_id() for _ in range(100)}
    assert len(ids) == 200


def test_the_clients_id_is_kept_and_twins_in_flight_differ_upstream() -> None:
    desk = Desk()
    first, second = desk.open("dup"), desk.open("dup")
    assert (first.client_id, first.upstream_id, second.client_id) == ("dup", "dup", "dup")
    assert second.upstream_id != "dup"
    desk.register.settle(first)
    assert desk.open("dup").upstream_id == "dup"


def test_an_id_that_a_replica_could_not_take_stays_here() -> None:
    exchange = Desk().open("x" * 1000)
    assert exchange.client_id == "x" * 1000
    assert len(exchange.upstream_id) <= 128


def test_a_client_that_left_is_counted_where_it_left() -> None:
    desk = Desk()
    exchange = desk.open()
    exchange.stage, exchange.outcome = Stage.STREAMING, CLIENT_GONE
    desk.register.settle(exchange)
    assert desk.ledger.client_gone.value(("streaming",)) == 1


def test_a_settled_request_cannot_be_interrupted() -> None:
    desk = Desk()
    exchange = desk.open()
    exchange.on_interrupt = lambda: True
    desk.register.settle(exchange)
    assert exchange.on_interrupt is None


def test_a_request_is_told_which_trace_it_belongs_to() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    desk = Desk()
    assert desk.open(traceparent=parent).trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert len(desk.open().trace.trace_id) == 32


def test_what_could_not_be_read_belongs_to_no_trace() -> None:
    exchange = Desk().register.open("", "", "other", None)
    assert exchange.client_id.startswith("rr-")
    assert exchange.trace.trace_id == ""
