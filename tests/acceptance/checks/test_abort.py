"""An engine stops for a client that has left."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_engine_that_goes_on_fails(examine: Examine) -> None:
    async with Scripted("one", aborts=False) as one:
        finding = await examine("abort", one.url)
    assert finding.status is Status.FAIL
    assert "frees the engine not within" in finding.why


async def test_without_the_engines_numbers_the_ledger_tells(examine: Examine) -> None:
    finding = await examine("abort", Scripted("one", page=False))
    assert (finding.status, "by the router's ledger" in finding.why) == (Status.PASS, True)


async def test_without_any_numbers_it_is_skipped(examine: Examine) -> None:
    async with Scripted("one", page=False) as one:
        finding = await examine("abort", one.url)
    assert (finding.status, "metrics on" in finding.cure) == (Status.SKIPPED, True)
