"""A request can be found again by its id."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_engine_that_keeps_it_to_itself_is_a_warning_with_the_flag(examine: Examine) -> None:
    async with Scripted("one") as one:
        finding = await examine("request-id", one.url)
    assert (finding.status, "--enable-request-id-headers" in finding.cure) == (Status.WARN, True)


async def test_the_router_returns_it(examine: Examine) -> None:
    assert (await examine("request-id", Scripted("one"))).status is Status.PASS
