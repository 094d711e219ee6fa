"""Unwell addresses are found."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_unhealthy_replica_fails_with_its_state(examine: Examine) -> None:
    well, ill = Scripted("well"), Scripted("ill")
    ill.own.health = 503
    finding = await examine("health", well, ill, settings={"health": {"unhealthy_after": 1}}, ready=1)
    assert finding.status is Status.FAIL
    assert "ill answers 503 to /health" in finding.why
    assert "ill is loading" in finding.why


async def test_a_replica_that_refuses_connections_fails(examine: Examine) -> None:
    one, gone = Scripted("one"), Scripted("gone")
    finding = await examine("health", one, gone, replicas=(one.url, "http://127.0.0.1:1"))
    assert (finding.status, "refuses connections" in finding.why) == (Status.FAIL, True)


async def test_a_router_without_a_ready_replica_fails(examine: Examine) -> None:
    ill = Scripted("ill")
    ill.own.health = 503
    finding = await examine("health", ill, ready=0)
    assert (finding.status, "503 to /ready" in finding.why) == (Status.FAIL, True)


async def test_of_a_dead_replica_its_state_is_not_told_too(examine: Examine) -> None:
    gone = Scripted("gone")
    finding = await examine("health", gone, "http://127.0.0.1:1", ready=1)
    assert (finding.status, finding.why) == (Status.FAIL, "127.0.0.1:1: refuses connections")
