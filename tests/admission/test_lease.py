"""A lease counts one request in one stage of one replica, until it ends, however often."""

from itertools import product

import pytest

from replicarouter.admission.fairness import Account, Book
from replicarouter.admission.lease import Lease
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from tests.scene import a_replica, an_exchange

MOVES = (Stage.SENT, Stage.STREAMING)


def counts(replica: Replica) -> tuple[int, int, int, int]:
    stages = [replica.count(stage) for stage in (Stage.CONNECTING, Stage.SENT, Stage.STREAMING)]
    return (*stages, replica.outstanding)  # type: ignore[return-value]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def replica(ledger: Ledger) -> Replica:
    """The second of three, so that a slip into a neighbour's row shows."""
    replicas = [a_replica(name, ledger=ledger) for name in "abc"]
    return replicas[1]


@pytest.fixture
def account() -> Account:
    return Book({}).account("someone")


def test_a_lease_begins_by_connecting(ledger: Ledger, replica: Replica, account: Account) -> None:
    exchange = an_exchange()
    Lease(ledger, replica, exchange, account)

    assert counts(replica) == (1, 0, 0, 1)
    assert exchange.stage is Stage.CONNECTING
    assert account.held == 1


def test_a_lease_moves_its_count_and_its_exchange(ledger: Ledger, replica: Replica, account: Account) -> None:
    exchange = an_exchange()
    lease = Lease(ledger, replica, exchange, account)
    lease.move(Stage.SENT)
    assert (counts(replica), exchange.stage) == ((0, 1, 0, 1), Stage.SENT)

    lease.move(Stage.STREAMING)
    assert (counts(replica), exchange.stage) == ((0, 0, 1, 1), Stage.STREAMING)


@pytest.mark.parametrize("moves", [[], [Stage.SENT], [Stage.SENT, Stage.STREAMING], [Stage.STREAMING]])
def test_an_ended_lease_counts_nothing_and_the_exchange_remembers_where(
    ledger: Ledger, replica: Replica, account: Account, moves: list[Stage]
) -> None:
    exchange = an_exchange()
    lease = Lease(ledger, replica, exchange, account)
    for stage in moves:
        lease.move(stage)
    lease.end()

    assert counts(replica) == (0, 0, 0, 0)
    assert exchange.stage is (moves[-1] if moves else Stage.CONNECTING)


def test_ending_twice_is_ending_once(ledger: Ledger, replica: Replica, account: Account) -> None:
    lease, other = (
        Lease(ledger, replica, an_exchange(), account),
        Lease(ledger, replica, an_exchange(), account),
    )
    lease.end()
    lease.end()
    assert counts(replica) == (1, 0, 0, 1)
    assert account.held == 1

    other.end()
    assert counts(replica) == (0, 0, 0, 0)
    assert account.held == 0


def test_an_ended_lease_does_not_move_any_more(ledger: Ledger, replica: Replica, account: Account) -> None:
    exchange = an_exchange()
    lease = Lease(ledger, replica, exchange, account)
    lease.end()
    lease.move(Stage.STREAMING)

    assert counts(replica) == (0, 0, 0, 0)
    assert exchange.stage is Stage.CONNECTING


@pytest.mark.parametrize("steps", list(product((*MOVES, None), repeat=3)))
def test_outstanding_is_the_sum_of_the_stages_after_every_step(
    ledger: Ledger, replica: Replica, account: Account, steps: tuple[Stage | None, ...]
) -> None:
    resting = Lease(ledger, replica, an_exchange(), account)
    lease = Lease(ledger, replica, an_exchange(), account)
    for stage in steps:
        if stage is None:
            lease.end()
        else:
            lease.move(stage)
        *stages, outstanding = counts(replica)
        assert outstanding == sum(stages)
        assert min(stages) >= 0
    lease.end()
    resting.end()

    assert list(ledger.cells) == [0] * len(ledger.cells)
