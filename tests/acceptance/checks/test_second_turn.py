"""A second turn meets its first, and the cache of it."""

from replicarouter.acceptance import Status
from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.checks.second_turn import Conversation, judge_place
from replicarouter.acceptance.reply import Reply
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

HASH = {"policy": "prefix-hash"}


async def test_another_policy_is_a_warning_with_the_one_to_take(examine: Examine) -> None:
    fleet = Scripted("one"), Scripted("two")
    finding = await examine("second-turn", *fleet, settings={"policy": "least-outstanding"})
    assert finding.status is Status.WARN
    assert "policy least-outstanding" in finding.why
    assert "--policy prefix-hash" in finding.cure


def test_turns_that_meet_their_replica_without_a_policy_for_it_do_so_by_chance() -> None:
    together = Answer(Reply("r", 200, {"x-replicarouter-replica": "one"}, b""))
    finding = judge_place([Conversation(together, together)] * 4, "least-outstanding")
    assert finding.status is Status.WARN
    assert finding.why == (
        "policy least-outstanding does not keep conversations together: 4 of 4 second turns meet the replica"
        " of the first (by chance)"
    )


async def test_a_cold_cache_at_the_right_replica_fails_with_the_flag(examine: Examine) -> None:
    fleet = Scripted("one", cached_tokens=0), Scripted("two", cached_tokens=0)
    finding = await examine("second-turn", *fleet, settings=HASH)
    assert (finding.status, "0 of 4" in finding.why) == (Status.FAIL, False)
    assert "--enable-prefix-caching" in finding.cure


async def test_counters_tell_where_usage_does_not(examine: Examine) -> None:
    fleet = Scripted("one", cached_tokens=None), Scripted("two", cached_tokens=None)
    finding = await examine("second-turn", *fleet, settings=HASH)
    assert (finding.status, "the engines count 4 prompt tokens found" in finding.why) == (Status.PASS, True)


async def test_engines_that_tell_nothing_are_skipped_with_the_flag(examine: Examine) -> None:
    mute = Scripted("one", cached_tokens=None, hits=False)
    finding = await examine("second-turn", mute, settings=HASH)
    assert (finding.status, "--enable-prompt-tokens-details" in finding.cure) == (Status.SKIPPED, True)


async def test_a_session_key_is_sent_for_the_policy_that_needs_one(examine: Examine) -> None:
    finding = await examine("second-turn", Scripted("one"), Scripted("two"), settings={"policy": "session"})
    assert finding.status is Status.PASS


async def test_a_sticky_policy_that_loses_conversations_fails_with_the_reason(examine: Examine) -> None:
    """With all session headers unknown, `session` falls back to the least outstanding."""
    settings = {"policy": "session", "policy_options": {"session_headers": ["x-other"]}}
    finding = await examine("second-turn", Scripted("one"), Scripted("two"), settings=settings)
    assert (finding.status, "none" in finding.why) == (Status.FAIL, True)
    assert "session_headers" in finding.cure


async def test_names_of_replicas_that_are_not_told_leave_the_cache_to_judge(examine: Examine) -> None:
    settings = {**HASH, "expose_replica": False}
    finding = await examine("second-turn", Scripted("one"), Scripted("two"), settings=settings)
    assert (finding.status, "which replica answers is not told" in finding.why) == (Status.PASS, True)
