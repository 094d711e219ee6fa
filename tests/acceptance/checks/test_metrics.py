"""The numbers are there, or the flag that brings them is told."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_an_engine_without_a_page_fails_with_the_flag(examine: Examine) -> None:
    finding = await examine("metrics", Scripted("one"), Scripted("two", page=False, owner="sglang"))
    assert finding.status is Status.FAIL
    assert "two has no /metrics (404)" in finding.why
    assert finding.cure == "start SGLang with --enable-metrics"


async def test_a_page_that_lacks_series_fails_with_their_names(examine: Examine) -> None:
    finding = await examine("metrics", Scripted("one", hits=False), Scripted("two"))
    assert (finding.status, "one lacks vllm:prefix_cache_hits_total" in finding.why) == (Status.FAIL, True)


async def test_a_page_of_an_unknown_engine_is_a_warning(examine: Examine) -> None:
    strange = Scripted("one")
    strange.own.strange_page = True
    finding = await examine("metrics", strange)
    assert (finding.status, "no series of vLLM or SGLang" in finding.why) == (Status.WARN, True)


async def test_replicas_that_are_not_known_are_a_warning(examine: Examine) -> None:
    finding = await examine("metrics", Scripted("one"), admin="http://127.0.0.1:1")
    assert (finding.status, "--admin" in finding.cure) == (Status.WARN, True)
    meant = await examine("metrics", Scripted("two"), router_only=True)
    assert (meant.status, "only the router is checked" in meant.why) == (Status.PASS, True)


async def test_a_dead_engine_is_to_be_started_not_given_a_flag(examine: Examine) -> None:
    one = Scripted("one")
    finding = await examine("metrics", one, replicas=(one.url, "http://127.0.0.1:1"))
    assert (finding.status, finding.cure) == (Status.FAIL, "start it, or take it out of the fleet")
