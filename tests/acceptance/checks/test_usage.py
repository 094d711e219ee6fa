"""Token counts are there, and can be true."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_answers_without_counts_fail(examine: Examine) -> None:
    finding = await examine("usage", Scripted("one"), Scripted("two", usage=False))
    assert finding.status is Status.FAIL
    assert "two: a stream with stream_options.include_usage has no usage" in finding.why


async def test_counts_that_differ_between_replicas_fail(examine: Examine) -> None:
    finding = await examine("usage", Scripted("one"), Scripted("two", prompt_tokens=12))
    assert (finding.status, "12 at two" in finding.why, "template" in finding.cure) == (
        Status.FAIL,
        True,
        True,
    )


async def test_counts_that_cannot_be_true_fail(examine: Examine) -> None:
    finding = await examine("usage", Scripted("one", prompt_tokens=0))
    assert (finding.status, "cannot be true" in finding.why) == (Status.FAIL, True)
