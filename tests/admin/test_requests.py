"""The requests in flight, without the port in between."""

from collections.abc import Callable

import pytest

from replicarouter.admin.requests import OwnRequests
from replicarouter.fleet.ledger import Ledger
from tests.scene import an_exchange


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


async def test_all_are_listed_the_oldest_first(ledger: Ledger) -> None:
    for name in ("one", "two"):
        ledger.in_flight[name] = an_exchange(client_id=name, upstream_id=name)
    rows = await OwnRequests(ledger, lambda: 1003.0).rows()
    assert [(row["id"], row["age"]) for row in rows] == [("one", 3.0), ("two", 3.0)]


async def test_the_id_that_is_unique_comes_first(ledger: Ledger) -> None:
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
        ledger.in_flight[upstream_id] = exchange
    requests = OwnRequests(ledger, lambda: 1000.0)
    assert await requests.cancel("x1")
    assert await requests.cancel("shared")
    del ledger.in_flight["shared"]
    assert await requests.cancel("shared")
    assert ended == ["x1", "shared", "x1"]


async def test_a_request_that_has_just_ended_is_unknown(ledger: Ledger) -> None:
    exchange = an_exchange(client_id="c", upstream_id="c")
    exchange.on_interrupt = lambda: False
    ledger.in_flight["c"] = exchange
    assert not await OwnRequests(ledger, lambda: 1000.0).cancel("c")
