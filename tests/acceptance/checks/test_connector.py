"""The router lets through as many requests as the fleet can run, and as are wanted."""

from typing import Any

import pytest

from replicarouter.acceptance import Finding, Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

SMALL = Wishes(concurrency=2)


def limit(most: int) -> dict[str, Any]:
    return {"connector": {"limit": most}}


def each(most: int) -> dict[str, Any]:
    return {"connector": {"limit_per_replica": most}}


def outstanding(most: int) -> dict[str, Any]:
    return {"admission": {"max_outstanding_per_replica": most}}


def running(most: int, name: str = "one", **settings: int) -> Scripted:
    return Scripted(name, settings={"max_num_seqs": most, **settings})


async def test_a_limit_below_the_wanted_concurrency_fails(examine: Examine) -> None:
    finding = await examine("connector", running(6), wishes=Wishes(concurrency=8), settings=limit(4))
    assert finding.status is Status.FAIL
    assert finding.why == (
        "connector.limit is 4 and 8 streams are wanted (--concurrency): 4 would wait in the router while"
        " engines idle"
    )
    assert finding.cure == "connector.limit 0 (--connector-limit 0), or 8 at least"


async def test_a_limit_below_what_the_engines_run_fails(examine: Examine) -> None:
    finding = await examine("connector", running(16), wishes=SMALL, settings=limit(4))
    assert (finding.status, "the fleet runs 16 requests" in finding.why) == (Status.FAIL, True)


async def test_what_is_wanted_beyond_what_the_fleet_runs_is_told_as_that(examine: Examine) -> None:
    finding = await examine("connector", running(16), wishes=Wishes(concurrency=20), settings=limit(4))
    assert (finding.status, "20 streams are wanted (--concurrency)" in finding.why) == (Status.FAIL, True)
    assert "the fleet runs" not in finding.why


async def test_a_limit_that_is_large_enough_passes(examine: Examine) -> None:
    finding = await examine("connector", running(4), wishes=Wishes(concurrency=4), settings=limit(4))
    assert (finding.status, finding.why) == (
        Status.PASS,
        "connector.limit is 4, the fleet runs 4 requests at a time",
    )
    assert finding.figures == {"connector.limit": 4}


async def test_a_limit_below_what_start_up_assumes_of_the_engines_is_a_warning(examine: Examine) -> None:
    """Without `max_num_seqs`, which is how most files are."""
    fleet = Scripted("one"), running(16, "two")
    finding = await examine("connector", *fleet, settings=limit(100))
    assert finding.status is Status.WARN
    assert "the fleet may run 272 requests at a time (256 assumed for each replica without" in finding.why
    assert finding.cure.startswith("connector.limit 0 (--connector-limit 0), or 272 at least; or tell ")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (each(1), "connector.limit_per_replica"),
        (outstanding(1), "admission.max_outstanding_per_replica"),
    ],
)
async def test_a_limit_of_each_replica_below_the_wanted_concurrency_fails(
    examine: Examine, settings: dict[str, Any], name: str
) -> None:
    finding = await examine("connector", Scripted("one"), Scripted("two"), settings=settings)
    assert finding.status is Status.FAIL
    assert f"{name} is 1, which lets 2 through, and 32 streams are wanted" in finding.why
    assert finding.cure.startswith(f"{name} 0")
    assert finding.cure.endswith("or 256 at least")


@pytest.mark.parametrize("settings", [each(8), outstanding(8)])
async def test_a_limit_of_each_replica_is_compared_with_what_its_engine_runs(
    examine: Examine, settings: dict[str, Any]
) -> None:
    async def with_engine(engine: Scripted) -> Finding:
        return await examine("connector", running(8), engine, wishes=SMALL, settings=settings)

    more = await with_engine(running(12, "two"))
    assert (more.status, "is 8 and two runs 12 requests at a time: 4 would" in more.why) == (
        Status.FAIL,
        True,
    )
    unknown = await with_engine(Scripted("two"))
    assert (unknown.status, "is 8 and two may run 256 requests" in unknown.why) == (Status.WARN, True)
    assert (await with_engine(running(8, "two"))).status is Status.PASS


async def test_a_replicas_own_limit_is_named_with_it(examine: Examine) -> None:
    finding = await examine("connector", running(8, max_outstanding=2), running(8, "two"), wishes=SMALL)
    assert finding.status is Status.FAIL
    assert "replicas[].max_outstanding is 2 at one and one runs 8 requests at a time" in finding.why


async def test_the_pool_of_each_model_must_have_what_is_wanted(examine: Examine) -> None:
    other = Scripted("two", model="m2", settings={"max_num_seqs": 8})
    finding = await examine("connector", running(8), other, wishes=Wishes(concurrency=12), settings=each(8))
    assert finding.status is Status.FAIL
    assert "which lets 8 through, and 12 streams are wanted" in finding.why
    assert finding.cure.endswith("or 12 at least")


async def test_without_any_limit_it_passes(examine: Examine) -> None:
    finding = await examine("connector", Scripted("one"))
    assert (finding.status, finding.why) == (Status.PASS, "no limit")


async def test_an_engine_alone_has_none(examine: Examine) -> None:
    async with Scripted("one") as one:
        assert (await examine("connector", one.url)).status is Status.SKIPPED
