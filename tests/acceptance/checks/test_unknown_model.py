"""A model that nobody serves is refused in OpenAI's words."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_engine_that_serves_any_name_is_a_warning(examine: Examine) -> None:
    async with Scripted("one", any_model=True) as one:
        finding = await examine("unknown-model", one.url)
    assert (finding.status, "whatever model is named" in finding.why) == (Status.WARN, True)


async def test_an_error_of_another_shape_fails(examine: Examine) -> None:
    async with Scripted("one", error_shape=False) as one:
        finding = await examine("unknown-model", one.url)
    assert (finding.status, finding.why) == (Status.FAIL, "the 404 has no OpenAI error object")


async def test_the_router_refuses_where_its_engines_would_not(examine: Examine) -> None:
    finding = await examine("unknown-model", Scripted("one", any_model=True))
    assert finding.status is Status.PASS


async def test_a_router_that_knows_no_model_cannot_tell(examine: Examine) -> None:
    ill = Scripted("ill")
    ill.own.health = 503
    finding = await examine("unknown-model", ill, ready=0)
    assert (finding.status, "knows no model yet" in finding.why) == (Status.SKIPPED, True)
