"""Thinking is apart from the answer, or the flag that parts them is told."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_marks_in_the_text_are_a_warning_with_the_flag(examine: Examine) -> None:
    finding = await examine("reasoning", Scripted("one", text="<think>Hm.</think> It is 16:25."))
    assert (finding.status, "--reasoning-parser" in finding.cure) == (Status.WARN, True)


async def test_a_field_of_its_own_passes_and_tells_what_the_first_token_is(examine: Examine) -> None:
    finding = await examine("reasoning", Scripted("one", reasoning="Hm."))
    assert (finding.status, finding.why.startswith("kept apart: first token after")) == (Status.PASS, True)


async def test_replicas_of_two_minds_fail(examine: Examine) -> None:
    fleet = Scripted("one", reasoning="Hm."), Scripted("two", text="<think>Hm.</think> Yes.")
    finding = await examine("reasoning", *fleet)
    assert (finding.status, "at two" in finding.why) == (Status.FAIL, True)


async def test_an_answer_that_never_comes_to_the_point_passes_and_says_so(examine: Examine) -> None:
    finding = await examine("reasoning", Scripted("one", reasoning="Hm.", text=""))
    assert (finding.status, "answer_ttft_seconds" in finding.why) == (Status.PASS, True)
