"""A stream says what a whole answer says."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted


async def test_a_stream_of_other_words_fails_and_tells_both(examine: Examine) -> None:
    finding = await examine("streaming", Scripted("one"), Scripted("two", streamed_text="harbour"))
    assert finding.status is Status.FAIL
    assert "two: the streamed text is 'harbour', the whole one 'harbour lantern'" in finding.why


async def test_a_stream_without_its_end_fails(examine: Examine) -> None:
    finding = await examine("streaming", Scripted("one"), Scripted("two", done=False))
    assert (finding.status, "two: the stream is malformed: it does not end with [DONE]" in finding.why) == (
        Status.FAIL,
        True,
    )


async def test_another_finish_reason_fails(examine: Examine) -> None:
    finding = await examine("streaming", Scripted("one", streamed_finish="length"))
    assert (finding.status, "finishes with length, the whole answer with stop" in finding.why) == (
        Status.FAIL,
        True,
    )


async def test_a_difference_that_does_not_come_again_is_a_warning(examine: Examine) -> None:
    finding = await examine("streaming", Scripted("one", whims=1))
    assert (finding.status, "differed once" in finding.why) == (Status.WARN, True)
