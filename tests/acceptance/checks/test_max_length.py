"""A prompt that fits one replica fits all."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_lengths_that_differ_fail(examine: Examine) -> None:
    finding = await examine("max-length", Scripted("one"), Scripted("two", length=4096))
    assert finding.status is Status.FAIL
    assert finding.why == "the replicas differ: 8192 at one; 4096 at two tokens"
    assert "--max-model-len" in finding.cure


async def test_engines_that_do_not_tell_are_skipped(examine: Examine) -> None:
    finding = await examine("max-length", Scripted("one", length=0), Scripted("two", length=0))
    assert finding.status is Status.SKIPPED
