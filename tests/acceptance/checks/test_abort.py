"""An engine stops for a client that has left."""

import re

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_engine_that_goes_on_fails(examine: Examine) -> None:
    async with Scripted("one", aborts=False) as one:
        finding = await examine("abort", one.url)
    assert finding.status is Status.FAIL
    assert re.search(r"go on for clients that have left: \S+, for more than 3 s$", finding.why)


async def test_the_replica_that_a_stream_of_the_router_met_is_named(examine: Examine) -> None:
    finding = await examine("abort", Scripted("one", aborts=False))
    assert (finding.status, "the router (met one), for more than 3 s; one, for" in finding.why) == (
        Status.FAIL,
        True,
    )


async def test_without_the_engines_numbers_the_ledger_tells(examine: Examine) -> None:
    finding = await examine("abort", Scripted("one", page=False))
    assert (finding.status, "by the router's ledger" in finding.why) == (Status.PASS, True)


async def test_without_any_numbers_it_is_skipped(examine: Examine) -> None:
    async with Scripted("one", page=False) as one:
        finding = await examine("abort", one.url)
    assert (finding.status, "metrics on" in finding.cure) == (Status.SKIPPED, True)


async def test_replicas_that_are_not_known_are_the_reason_told(examine: Examine) -> None:
    finding = await examine("abort", Scripted("one"), admin="http://127.0.0.1:1")
    assert (finding.status, finding.why) == (
        Status.SKIPPED,
        "it cannot be seen: the replicas are not known",
    )
