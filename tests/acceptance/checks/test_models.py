"""Which models there are, and of which weights."""

from replicarouter.acceptance import Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_other_weights_under_the_same_name_fail(examine: Examine) -> None:
    finding = await examine("models", Scripted("one"), Scripted("two", root="/models/two"))
    assert finding.status is Status.FAIL
    assert finding.why == "m1 is /models/one at one and /models/two at two"
    assert "--model" in finding.cure


async def test_a_model_that_nobody_serves_fails_with_those_that_are(examine: Examine) -> None:
    finding = await examine("models", Scripted("one"), Scripted("two"), wishes=Wishes(models=("m7",)))
    assert (finding.status, finding.why) == (Status.FAIL, "m7 is not served; served: m1")


async def test_a_replica_that_the_router_does_not_know_of_is_not_one_of_its_models(examine: Examine) -> None:
    inside, outside = Scripted("inside"), Scripted("outside", model="m9")
    await outside.listen()
    finding = await examine("models", inside, replicas=(inside.url, outside.url))
    await outside.stop()
    assert (finding.status, "lists m9 and the router does not" in finding.why) == (Status.FAIL, True)


async def test_pools_of_several_models_are_told_and_pass(examine: Examine) -> None:
    finding = await examine("models", Scripted("one"), Scripted("two", model="m2"))
    assert (finding.status, "2 kinds: m1 at 1 replica; m2 at 1 replica" in finding.why) == (Status.WARN, True)


async def test_a_dead_engine_is_to_be_started(examine: Examine) -> None:
    one = Scripted("one")
    finding = await examine("models", one, replicas=(one.url, "http://127.0.0.1:1"))
    assert (finding.status, finding.why) == (Status.FAIL, "127.0.0.1:1: refuses connections")
    assert finding.cure == "start it, or take it out of the fleet"


async def test_what_hides_the_replicas_is_not_told_in_a_pass(examine: Examine) -> None:
    finding = await examine("models", Scripted("one"), settings={"admin": {"token": "secret-token"}})
    assert (finding.status, finding.why) == (
        Status.PASS,
        "the router lists m1; the replicas are not known",
    )
