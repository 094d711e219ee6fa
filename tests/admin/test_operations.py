"""What an operator can change, without the port in between."""

from collections.abc import Callable

import pytest

from replicarouter.admin.operations import Operations, replica_settings
from replicarouter.admin.urls import UrlRule
from replicarouter.errors import InvalidRequest, UnknownReplica
from replicarouter.fleet.registry import Fleet
from tests.scene import a_fleet


@pytest.fixture
def fleet() -> Fleet:
    return a_fleet("a", "b")


@pytest.fixture
def operations(fleet: Fleet) -> Operations:
    return Operations(fleet, UrlRule(None, lambda: ()))


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
    operations = Operations(fleet, UrlRule(["10.0.0.0/8"], lambda: ()))
    with pytest.raises(InvalidRequest):
        await operations.add(b'"http://c.invalid"')
    assert [replica.name for replica in fleet] == ["a", "b"]
    assert (await operations.add(b'"http://10.0.0.1"')).origin == "admin"
