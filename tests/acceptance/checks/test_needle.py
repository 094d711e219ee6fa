"""What is hidden in a long prompt is found."""

from replicarouter.acceptance import Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_a_model_that_finds_nothing_fails_with_depths_and_replicas(examine: Examine) -> None:
    fleet = Scripted("one", finds=False), Scripted("two", finds=False)
    finding = await examine("needle", *fleet)
    assert finding.status is Status.FAIL
    assert "missed in 5 of 5" in finding.why
    assert "at depths 10%, 50%, 90%: the engines alone miss it: one, two" in finding.why


async def test_more_tokens_than_the_model_takes_fail_with_what_fits(examine: Examine) -> None:
    finding = await examine("needle", Scripted("one"), wishes=Wishes(needle=8000))
    assert (finding.status, finding.cure.startswith("--needle 7840 at most")) == (Status.FAIL, True)


async def test_a_prompt_has_the_length_that_was_asked_for(examine: Examine) -> None:
    one = Scripted("one", counts=True)
    finding = await examine("needle", one, wishes=Wishes(needle=3000))
    assert finding.status is Status.PASS
    assert 2800 < finding.figures["prompt_tokens"] < 3300


async def test_a_context_that_is_too_short_is_skipped(examine: Examine) -> None:
    assert (await examine("needle", Scripted("one", length=200))).status is Status.SKIPPED
