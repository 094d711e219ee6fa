"""Conversations carry their whole history, and what is heard of an answer is read as it was said."""

import time
from itertools import pairwise

import orjson
import pytest

from benchmarks.multi_turn_users import (
    HOST,
    Conversation,
    Crowd,
    Shape,
    field_of,
    read_events,
    read_turn,
    together,
)
from replicarouter.loadgen.client import Answer, Client
from replicarouter.loadgen.report import Tally
from replicarouter.protocol.framing import chunk
from replicarouter.simulator.engine import SimulatedEngine
from replicarouter.simulator.options import EngineOptions

HEAD = b"HTTP/1.1 200 OK\r\nX-Replicarouter-Replica: one:8001\r\nx-replicarouter-affinity:  hit "


def conversation(number: int = 3, *, says_who: bool = False) -> Conversation:
    client = Client(HOST, 1, tally=Tally(), clock=time.perf_counter)
    return Conversation(number, Shape(system_tokens=50, user_tokens=20, says_who=says_who), client)


def event(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


STREAM = (
    event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    + b": a comment\n\n"
    + event({"choices": [{"index": 0, "delta": {"content": "Zażółć "}}]})
    + event({"choices": [{"index": 0, "delta": {"content": None, "reasoning": "hm"}}]})
    + event({"choices": [{"index": 0, "delta": {"content": "it."}}], "usage": None})
    + event(
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 90,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        }
    )
    + b"data: [DONE]\n\n"
)


def test_prose_has_the_length_that_is_asked_for_and_follows_from_its_name() -> None:
    shape = Shape()
    text = shape.prose("system", 2000)
    assert 8000 <= len(text) < 8020
    assert text == Shape().prose("system", 2000)
    assert text[:40] != shape.prose("other", 2000)[:40]
    assert text != Shape(seed=1).prose("system", 2000)


def test_all_begin_with_the_same_words_and_go_on_with_their_own() -> None:
    one, other = conversation(1).body()["messages"], conversation(2).body()["messages"]
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_only_who_is_asked_for_it_says_who_it_is() -> None:
    assert "user" not in conversation().body()
    assert conversation(3, says_who=True).body()["user"] == "conversation-3"


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_answer_is_read_however_it_is_cut_into_chunks(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    body = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    answer = Answer(200, None, ttft=0.5, head=HEAD, body=bytearray(body))
    turn, said = read_turn(3, 2, answer)
    assert said == "Zażółć it."
    assert (turn.conversation, turn.number, turn.failure, turn.ttft) == (3, 2, None, 0.5)
    assert (turn.replica, turn.affinity) == ("one:8001", "hit")
    assert (turn.prompt_tokens, turn.cached_tokens, turn.completion_tokens) == (90, 64, 3)


def test_what_is_not_told_counts_as_nothing() -> None:
    turn, said = read_turn(1, 1, Answer(failure="no connection"))
    assert (turn.replica, turn.affinity, turn.cached_tokens, said) == ("", "", 0, "")
    assert turn.failure == "no connection"
    without = event({"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": None}})
    assert read_events(without) == ("", {"prompt_tokens": 9, "prompt_tokens_details": None})


def test_a_field_is_found_by_its_whole_name() -> None:
    assert field_of(b"HTTP/1.1 200 OK\r\nx-replicarouter-replica-2: no\r\n", b"x-replicarouter-replica") == ""


async def test_every_turn_carries_the_answers_that_were_really_given() -> None:
    engine = SimulatedEngine(EngineOptions(speed=0))
    await engine.start()
    crowd = Crowd(engine.port, 3, Shape(system_tokens=50, user_tokens=20, answer_tokens=8))
    try:
        await crowd.go_on(2)
        await crowd.go_on(1)
    finally:
        crowd.close()
        await engine.stop()
    assert sorted((turn.conversation, turn.number) for turn in crowd.turns) == [
        (one, number) for one in range(3) for number in (1, 2, 3)
    ]
    assert {turn.failure for turn in crowd.turns} == {None}
    assert {turn.completion_tokens for turn in crowd.turns} == {8}
    for one in range(3):
        lengths = [turn.prompt_tokens for turn in crowd.turns if turn.conversation == one]
        # A question of 20 tokens, the answer before it, and the marks around both.
        assert all(later - before > 20 + 4 for before, later in pairwise(lengths))


async def test_a_conversation_ends_with_its_first_failure() -> None:
    crowd = Crowd(1, 1, Shape(system_tokens=1, user_tokens=1))
    await crowd.go_on(3)
    assert [turn.failure for turn in crowd.turns] == ["no connection"]


async def test_a_bug_in_one_is_not_lost_among_the_others() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await together([fails()])
