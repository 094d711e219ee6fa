"""Engines of one pool have one version."""

from replicarouter.acceptance import Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_versions_that_differ_fail_and_are_told(examine: Examine) -> None:
    finding = await examine("version", Scripted("one"), Scripted("two", version="0.31.0"))
    assert finding.status is Status.FAIL
    assert finding.why == "the engines differ: 0.32.0 at one; 0.31.0 at two"
    assert "one version" in finding.cure


async def test_engines_that_do_not_tell_are_skipped(examine: Examine) -> None:
    finding = await examine("version", Scripted("one", version=""), Scripted("two", version=""))
    assert finding.status is Status.SKIPPED


async def test_pools_of_different_models_need_not_be_of_one_version(examine: Examine) -> None:
    wishes = Wishes(models=("m1",))
    fleet = Scripted("one"), Scripted("two"), Scripted("three", model="m2", version="0.1")
    assert (await examine("version", *fleet, wishes=wishes)).status is Status.PASS
