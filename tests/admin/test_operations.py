"""What an operator can change, without the port in between."""

from collections.abc import Callable

import pytest

from replicarouter.admin.operations import Operations, replica_settings
from replicarouter.admin.urls import UrlRule
from replicarouter.errors import InvalidRequest, UnknownReplica, UnknownRequest
from replicarouter.fleet.registry import Fleet
from tests.scene import a_fleet, an_exchange


@pytest.fixture
def fleet() -> Fleet:
    return a_fleet("a", "b")


@pytest.fixture
def operations(fleet: Fleet) -> Operations:
    return Operations(fleet, fleet.ledger, UrlRule(None, lambda: ()))


def test_an_entry_is_read_as_the_settings_file_is() -> None:
    one = replica_settings(b'{"url": "http://C.invalid:80/", "weight": 2, "models": ["m"]}')
    assert (one.url, one.name, one.weight, one.models) == ("http://c.invalid", "c.invalid:80", 2, ["m"])
    assert replica_settings(b'"http://c.invalid"').url == "http://c.invalid"


def test_every_fault_of_an_entry_is_told_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        replica_settings(b'{"url": "ftp://c", "weight": -1, "colour": "red"}')
    assert [line.partition(" (")[0].partition(":")[0] for line in refused.value.message.splitlines()] == [
        "replica.url",
        "replica.weight",
        "replica.colour",
    ]


@pytest.mark.parametrize("order", [Operations.drain, Operations.undrain, Operations.remove])
def test_an_order_for_nobody_is_refused(
    operations: Operations, order: Callable[[Operations, str], object]
) -> None:
    with pytest.raises(UnknownReplica):
        order(operations, "c")


async def test_a_refused_url_does_not_join(fleet: Fleet) -> None:
    operations = Operations(fleet, fleet.ledger, UrlRule(["10.0.0.0/8"], lambda: ()))
    with pytest.raises(InvalidRequest):
        await operations.add(b'"http://c.invalid"')
    assert [replica.name for replica in fleet] == ["a", "b"]
    assert (await operations.add(b'"http://10.0.0.1"')).origin == "admin"


def test_the_id_that_is_unique_comes_first(operations: Operations, fleet: Fleet) -> None:
    """A client may give the id under which the replica of somebody else's request knows that one."""
    ended: list[str] = []

    def interrupt(name: str) -> Callable[[], bool]:
        def run() -> bool:
            ended.append(name)
            return True

        return run

    for upstream_id, client_id in (("x1", "shared"), ("x2", "shared"), ("shared", "other"), ("x3", "x1")):
        exchange = an_exchange(client_id=client_id, upstream_id=upstream_id)
        exchange.on_interrupt = interrupt(upstream_id)
        fleet.ledger.in_flight[upstream_id] = exchange
    operations.cancel("x1")
    operations.cancel("shared")
    del fleet.ledger.in_flight["shared"]
    operations.cancel("shared")
    assert ended == ["x1", "shared", "x1"]


def test_a_request_that_has_just_ended_is_unknown(operations: Operations, fleet: Fleet) -> None:
    exchange = an_exchange(client_id="c", upstream_id="c")
    exchange.on_interrupt = lambda: False
    fleet.ledger.in_flight["c"] = exchange
    with pytest.raises(UnknownRequest):
        operations.cancel("c")
