"""All replicas say the same."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_a_replica_that_says_something_else_fails_by_name(examine: Examine) -> None:
    fleet = Scripted("one"), Scripted("two", text="something else"), Scripted("three")
    finding = await examine("same-answers", *fleet)
    assert (finding.status, finding.why) == (Status.FAIL, "at temperature 0 another answer comes from two")
    assert "weights" in finding.cure


async def test_a_difference_that_does_not_come_again_is_a_warning(examine: Examine) -> None:
    fleet = Scripted("one"), Scripted("two", whims=1), Scripted("three")
    assert (await examine("same-answers", *fleet)).status is Status.WARN


async def test_a_replica_that_does_not_answer_fails(examine: Examine) -> None:
    one, two = Scripted("one"), Scripted("two", broken=True)
    finding = await examine("same-answers", one, two)
    assert (finding.status, "two answers 500: engine on fire" in finding.why) == (Status.FAIL, True)
