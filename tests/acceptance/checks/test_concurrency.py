"""All streams of a level come whole."""

import re
from typing import Any

import pytest

from replicarouter.acceptance import Status, Wishes
from replicarouter.acceptance.answers import Answer, Usage
from replicarouter.acceptance.checks.concurrency import measure
from replicarouter.acceptance.reply import Reply
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

EIGHT = Wishes(concurrency=8)


async def test_streams_without_usage_fail(examine: Examine) -> None:
    finding = await examine("concurrency", Scripted("one", usage=False), wishes=Wishes(concurrency=2))
    assert (finding.status, "it has no usage" in finding.why) == (Status.FAIL, True)


async def test_streams_that_are_cut_fail(examine: Examine) -> None:
    finding = await examine("concurrency", Scripted("one", cut=True), wishes=Wishes(concurrency=2))
    assert (finding.status, "at 1 stream not all came whole" in finding.why) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("settings", "own", "cure"),
    [
        ({"connector": {"limit": 4}}, {}, "connector.limit is 4: set connector.limit 0 ("),
        ({"connector": {"limit_per_replica": 4}}, {}, "connector.limit_per_replica is 4: set connector."),
        (
            {"admission": {"max_outstanding_per_replica": 4}},
            {},
            "admission.max_outstanding_per_replica is 4: set admission.max_outstanding_per_replica 0 (",
        ),
        (
            {"admission": {"max_outstanding_per_replica": 4}},
            {"max_outstanding": 4},
            "replicas[].max_outstanding where that is given), or 256 at least",
        ),
    ],
)
async def test_streams_that_the_router_holds_fail_with_the_setting(
    examine: Examine, settings: dict[str, Any], own: dict[str, Any], cure: str
) -> None:
    """The connector limit of a published campaign, in small."""
    slow = Scripted("one", pace=0.6, settings=own)
    finding = await examine("concurrency", slow, wishes=EIGHT, settings=settings)
    assert finding.status is Status.FAIL
    assert "at 8 streams the router held 4 for up to" in finding.why
    assert cure in finding.cure


async def test_streams_that_the_engines_queue_are_a_warning_with_theirs(examine: Examine) -> None:
    slow = Scripted("one", pace=0.6, slots=4)
    finding = await examine("concurrency", slow, wishes=EIGHT)
    assert (finding.status, "the engines queue" in finding.why) == (Status.WARN, True)
    assert "--max-num-seqs" in finding.cure


def test_streams_that_all_begin_late_have_not_waited_for_each_other() -> None:
    """A slow machine is no queue."""
    answers = [_answer(first_at=2.0 + number / 10, ended_at=5.0) for number in range(4)]
    assert measure(answers, 0.1).late == 0
    assert measure([*answers, _answer(first_at=5.5, ended_at=8.0)], 0.1).late == 1


def test_a_router_that_held_a_late_stream_for_the_lesser_part_is_not_to_blame() -> None:
    """A machine that stutters delays what passes through the router, too."""
    first = _answer(first_at=0.1, ended_at=0.5)
    mostly = _answer(first_at=0.8, ended_at=1.0, held_ms=600)
    partly = _answer(first_at=0.8, ended_at=1.0, held_ms=200)
    assert measure([first, mostly], 0.1).held == 1
    assert (measure([first, partly], 0.1).held, measure([first, partly], 0.1).late) == (0, 1)


def _answer(*, first_at: float, ended_at: float, held_ms: int = 0) -> Answer:
    reply = Reply("one", 200, {"server-timing": f"queue;dur={held_ms}"}, b"")
    return Answer(reply, finish="stop", usage=Usage(1, 1, 2, None), first_at=first_at, ended_at=ended_at)


async def test_a_replica_that_is_slow_to_begin_is_named_and_no_queue(examine: Examine) -> None:
    fleet = Scripted("one"), Scripted("two", delay=0.6)
    finding = await examine("concurrency", *fleet, wishes=EIGHT)
    assert finding.status is Status.WARN
    assert re.search(r"first tokens take \d+ ms at two, and \d+ ms elsewhere", finding.why)
    assert "compare GPU" in finding.cure


async def test_times_say_what_they_are(examine: Examine) -> None:
    finding = await examine("concurrency", Scripted("one"), wishes=Wishes(concurrency=2))
    time = r"[\d.]+ m?s"
    told = f"all came whole; 1 stream: TTFT {time}, ITL {time}; 2 streams: TTFT {time}, ITL {time}"
    assert re.fullmatch(told + r" \(medians\)", finding.why)


async def test_the_levels_are_1_4_8_and_the_one_wanted(examine: Examine) -> None:
    finding = await examine("concurrency", Scripted("one"), wishes=Wishes(concurrency=9))
    levels = finding.figures["levels"]
    assert [level["streams"] for level in levels] == [1, 4, 8, 9]
    assert [sum(level["replicas"].values()) for level in levels] == [1, 4, 8, 9]
    assert all(level["ttft_p50"] > 0 and level["itl_p50"] >= 0 for level in levels)
