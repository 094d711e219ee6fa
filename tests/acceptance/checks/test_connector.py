"""The router opens as many connections as the fleet can use."""

from replicarouter.acceptance import Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

LIMIT = {"connector": {"limit": 4}}


async def test_a_limit_below_the_wanted_concurrency_fails(examine: Examine) -> None:
    finding = await examine("connector", Scripted("one"), wishes=Wishes(concurrency=8), settings=LIMIT)
    assert finding.status is Status.FAIL
    assert "the limit is 4 and 8 streams are wanted" in finding.why
    assert finding.cure == "--connector-limit 0, or 8 at least"


async def test_a_limit_below_what_the_engines_run_fails(examine: Examine) -> None:
    one = Scripted("one", settings={"max_num_seqs": 16})
    finding = await examine("connector", one, wishes=Wishes(concurrency=2), settings=LIMIT)
    assert (finding.status, "the fleet runs 16 requests" in finding.why) == (Status.FAIL, True)


async def test_what_is_wanted_beyond_what_the_fleet_runs_is_told_as_that(examine: Examine) -> None:
    one = Scripted("one", settings={"max_num_seqs": 16})
    finding = await examine("connector", one, wishes=Wishes(concurrency=20), settings=LIMIT)
    assert (finding.status, "20 streams are wanted (--concurrency)" in finding.why) == (Status.FAIL, True)
    assert "the fleet runs" not in finding.why


async def test_a_limit_that_is_large_enough_passes(examine: Examine) -> None:
    finding = await examine("connector", Scripted("one"), wishes=Wishes(concurrency=4), settings=LIMIT)
    assert finding.status is Status.PASS


async def test_an_engine_alone_has_none(examine: Examine) -> None:
    async with Scripted("one") as one:
        assert (await examine("connector", one.url)).status is Status.SKIPPED
