"""What requests at work show of their replicas, and which of them are given up."""

from typing import Any

import pytest

from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import OwnFloor, Work, from_former_life
from tests.scene import a_fleet, a_replica, an_exchange

END = 120.0


class Floor:
    """Two replicas, and requests as the ledger has them."""

    def __init__(self, *, end: float = END) -> None:
        self.fleet: Fleet = a_fleet("a", "b")
        self.own = OwnFloor(self.fleet, end)
        self.serial = 0

    def begin(self, name: str = "a", stage: Stage = Stage.STREAMING, **fields: Any) -> Exchange:
        self.serial += 1
        given = {"replica": name, "stage": stage, "sent_at": 10.0, "leased_at": 10.0, **fields}
        exchange = an_exchange(upstream_id=f"u{self.serial}", **given)
        exchange.on_interrupt = lambda: True
        self.fleet.ledger.in_flight[exchange.upstream_id] = exchange
        return exchange

    def given_up(self, now: float, *, everything: bool = False) -> list[str]:
        """Who is given up at `now`, by id, of the replica `a`."""
        self.own.works()
        self.own.give_up(self.fleet.find("a"), now, everything=everything)
        flying = self.fleet.ledger.in_flight
        return [name for name, exchange in flying.items() if exchange.interrupted is not None]


@pytest.fixture
def floor() -> Floor:
    return Floor()


def test_replicas_without_requests_at_work_show_nothing(floor: Floor) -> None:
    floor.begin(stage=Stage.CONNECTING)
    floor.begin("", Stage.QUEUED)
    assert floor.own.works() == {}


def test_what_is_sent_or_streaming_is_at_work(floor: Floor) -> None:
    floor.begin(stage=Stage.SENT, last_byte_at=0.0)
    floor.begin(last_byte_at=30.0)
    floor.begin("b", last_byte_at=40.0)
    works = floor.own.works()
    assert works["a"] == Work(at_work=2, tried=2, waiting=2, current=2, heard_at=30.0, asked_at=30.0)
    assert works["b"].heard_at == 40.0


@pytest.mark.parametrize(
    "fields", [{"held": True}, {"status": 101}], ids=["its client takes nothing", "a session that may pause"]
)
def test_some_expect_no_byte(floor: Floor, fields: dict[str, Any]) -> None:
    floor.begin(**fields)
    work = floor.own.works()["a"]
    assert (work.at_work, work.waiting) == (1, 0)
    assert floor.given_up(10 * END, everything=True) == []


def test_a_trial_is_judged_by_what_came_since_its_beginning(floor: Floor) -> None:
    floor.fleet.find("a").begin_trial(50.0)
    floor.begin(leased_at=49.0, head_at=51.0, status=200)
    work = floor.own.works()["a"]
    assert (work.at_work, work.tried, work.spoke) == (1, 0, False)
    floor.begin(leased_at=50.0, head_at=51.0, status=200)
    work = floor.own.works()["a"]
    assert (work.tried, work.spoke) == (1, True)


@pytest.mark.parametrize(("head_at", "status"), [(0.0, 0), (51.0, 429), (51.0, 500), (51.0, 503)])
def test_no_answer_or_a_bad_one_speaks_for_nobody(floor: Floor, head_at: float, status: int) -> None:
    floor.begin(head_at=head_at, status=status)
    assert not floor.own.works()["a"].spoke


def test_all_that_wait_are_given_up_when_there_is_no_hope(floor: Floor) -> None:
    floor.begin()
    floor.begin("b")
    floor.begin(stage=Stage.SENT)
    assert floor.given_up(11.0) == []
    assert floor.given_up(11.0, everything=True) == ["u1", "u3"]


def test_requests_to_an_engine_that_was_replaced_are_given_up_alone(floor: Floor) -> None:
    """The former process may hang with its connections open, while another one listens."""
    floor.begin(sent_at=10.0)
    floor.fleet.find("a").reborn_at = 11.0
    floor.begin(sent_at=12.0)
    work = floor.own.works()["a"]
    assert (work.waiting, work.current) == (2, 1)
    assert floor.given_up(10.0 + END - 1) == []
    assert floor.given_up(10.0 + END) == ["u1"]


def test_nothing_is_given_up_without_a_limit() -> None:
    floor = Floor(end=0.0)
    floor.begin(sent_at=10.0)
    floor.fleet.find("a").reborn_at = 11.0
    assert floor.given_up(1e6) == []


def test_a_request_belongs_to_the_engine_that_last_spoke_on_it() -> None:
    replica = a_replica()
    replica.reborn_at = 100.0
    assert from_former_life(an_exchange(sent_at=99.0), replica)
    assert not from_former_life(an_exchange(sent_at=101.0), replica)
    assert not from_former_life(an_exchange(sent_at=99.0, last_byte_at=101.0), replica)
