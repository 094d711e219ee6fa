"""The same messages become the same tokens."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_other_tokens_for_the_same_messages_fail(examine: Examine) -> None:
    finding = await examine("template", Scripted("one"), Scripted("two", template=1))
    assert finding.status is Status.FAIL
    assert "the tokens, not their number" in finding.why
    assert "--chat-template" in finding.cure


async def test_engines_that_do_not_tokenize_messages_are_said_not_to_be_comparable(examine: Examine) -> None:
    finding = await examine("template", Scripted("one"), Scripted("two", template=-1))
    assert (finding.status, "cannot be compared" in finding.why) == (Status.SKIPPED, True)


async def test_one_replica_is_nothing_to_compare(examine: Examine) -> None:
    assert (await examine("template", Scripted("one"))).status is Status.SKIPPED
