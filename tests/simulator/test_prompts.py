"""Two prompts have as many leading block hashes in common as they have leading tokens, in whole blocks."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.simulator.fields import ApiError
from replicarouter.simulator.plans import Plan
from replicarouter.simulator.prompts import (
    MEDIA_TOKENS,
    chain,
    chat_text,
    ids_prompt,
    planted_word,
    text_prompt,
)
from replicarouter.simulator.tokens import text_of, token_ids
from replicarouter.simulator.tools import ToolCall
from tests.properties import examples

BLOCK = 4
CHARACTERS = 4 * BLOCK
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"properties": {}}}}]


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def hashes(text: str, salt: str = "") -> list[int]:
    return text_prompt(text, block_size=BLOCK, salt=salt).hashes


def shared(one: list[int], other: list[int]) -> int:
    """Leading hashes in common; none may agree after one that does not."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    assert same == sorted(same, reverse=True)
    return sum(same)


@examples(200)
@given(st.text(max_size=200), st.text(max_size=200), st.integers(0, 200))
def test_texts_share_the_blocks_of_their_common_beginning(first: str, second: str, keep: int) -> None:
    second = first[:keep] + second
    common = next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    assert shared(hashes(first), hashes(second)) == common // CHARACTERS


@pytest.mark.parametrize(("characters", "tokens", "whole"), [(0, 0, 0), (1, 1, 0), (16, 4, 1), (63, 16, 3)])
def test_four_characters_of_any_width_are_a_token(characters: int, tokens: int, whole: int) -> None:
    for character in "xé東🙂\ud800":
        prompt = text_prompt(character * characters, block_size=BLOCK)
        assert (prompt.tokens, len(prompt.hashes)) == (tokens, whole)


def test_blocks_are_chained() -> None:
    repeated = hashes("abcd" * BLOCK * 3)
    assert len(set(repeated)) == 3
    assert chain(b"x" * 20, 8, 0) == chain(b"x" * 16, 8, 0)


def test_salt_keeps_prompts_apart() -> None:
    text = "x" * CHARACTERS * 2
    assert shared(hashes(text, "one"), hashes(text, "one")) == 2
    assert shared(hashes(text, "one"), hashes(text, "two")) == 0
    assert shared(hashes(text, "one"), hashes(text)) == 0


def test_salt_reaches_the_reply_to_a_prompt_of_less_than_a_block() -> None:
    plan = Plan(5, 0, 40, None, "stop")
    replies = [text_prompt("Hi", block_size=BLOCK, salt=salt).with_reply(plan) for salt in ("", "a", "a")]
    assert shared(replies[0], replies[1]) == 0
    assert replies[1] == replies[2] != []


def test_ids_share_leading_blocks_and_are_no_text() -> None:
    first, second = (ids_prompt([*range(9), last], block_size=BLOCK) for last in (1, 2))
    assert (first.tokens, len(first.hashes)) == (10, 2)
    assert shared(first.hashes, second.hashes) == 2
    assert shared(ids_prompt([0] * 8, block_size=BLOCK).hashes, hashes("\0" * 32)) == 0
    assert ids_prompt([-1, 2**70], block_size=BLOCK).tokens == 2
    assert first.with_reply(Plan(1, 0, 50, None, "length")) == first.hashes


def test_same_content_is_the_same_prompt_however_it_is_cut_into_parts() -> None:
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "world"}]
    assert chat_text([user(parts)]) == chat_text([user("Hello world")])


def test_roles_and_borders_of_messages_matter() -> None:
    assert chat_text([user("Hi")]) != chat_text([{"role": "system", "content": "Hi"}])
    assert chat_text([user("Hello world")]) != chat_text([user("Hello "), user("world")])


def test_everything_begins_with_a_token_of_its_own() -> None:
    lengths = [len(chat_text([user("x" * size)])) for size in range(9)]
    assert all(length % 4 == 0 for length in lengths)
    assert [later - sooner for sooner, later in pairwise(lengths)] == [4, 0, 0, 0] * 2


def test_tools_come_first() -> None:
    plain, with_tools = chat_text([user("Hi")]), chat_text([user("Hi")], TOOLS)
    assert with_tools.endswith(plain)
    assert shared(hashes(plain), hashes(with_tools)) == 0


PLANS = [
    Plan(5, 0, 41, None, "stop"),
    Plan(5, 0, 41, None, "stop", ("marz", "ipan", ".   ")),
    Plan(5, 0, 0, ToolCall("get_the_time", ('{"ci', 'ty":', '"x"}')), "tool_calls"),
]


def said(plan: Plan) -> dict[str, Any]:
    """The message that a client makes of an answer."""
    text = "".join(plan.lead) + text_of(plan.seed, 0, plan.text)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if plan.call:
        function = {"name": plan.call.name, "arguments": "".join(plan.call.pieces)}
        message["tool_calls"] = [{"id": "any", "type": "function", "function": function}]
    return message


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("question", ["", "Hi", "What time is it?" * 20])
@pytest.mark.parametrize("tools", [[], TOOLS])
def test_next_turn_goes_on_from_prompt_and_reply(
    plan: Plan, question: str, tools: list[dict[str, Any]]
) -> None:
    first = text_prompt(chat_text([user(question)], tools), block_size=BLOCK)
    turn = [user(question), said(plan), user("And now?" * 9)]
    after, next_turn = first.with_reply(plan), hashes(chat_text(turn, tools))
    assert shared(first.hashes, after) == len(first.hashes) < len(after)
    assert shared(after, next_turn) == len(after)


def test_reasoning_is_part_of_the_reply_and_not_of_the_next_turn() -> None:
    plan = Plan(5, 30, 30, None, "stop")
    first = text_prompt(chat_text([user("Why?" * 20)]), block_size=BLOCK)
    content = {"role": "assistant", "content": text_of(5, 30, 30), "reasoning": text_of(5, 0, 30)}
    next_turn = hashes(chat_text([user("Why?" * 20), content, user("So?")]))
    after = first.with_reply(plan)
    assert shared(after, next_turn) == len(first.hashes)
    assert len(after) >= (first.tokens + 60) // BLOCK


@pytest.mark.parametrize("tokens", [1, 7, 64, 301])
def test_reply_has_as_many_tokens_in_the_next_turn_as_when_it_was_generated(tokens: int) -> None:
    assert len(token_ids(text_of(99, 0, tokens))) == tokens


def test_media_are_told_apart_by_their_content() -> None:
    def picture(url: str) -> dict[str, Any]:
        return user([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}])

    one, other = chat_text([picture("data:1")]), chat_text([picture("data:2")])
    assert one == chat_text([picture("data:1")])
    assert shared(hashes(one), hashes(other)) == 0
    assert (len(one) - len(chat_text([user("What?")]))) == 4 * MEDIA_TOKENS


@pytest.mark.parametrize("content", [1, ["x"], [{"type": "image_url"}], [{"type": 1}], {"text": "x"}])
def test_content_that_cannot_be_read_is_refused(content: object) -> None:
    with pytest.raises(ApiError):
        chat_text([user(content)])


@pytest.mark.parametrize("message", [{}, {"role": 7}, {"content": None}, {"content": [{"text": 5}]}])
def test_odd_messages_have_a_prompt(message: dict[str, Any]) -> None:
    assert len(chat_text([message])) == 4 * (3 + 4)


@pytest.mark.parametrize("calls", [None, 5, [5], [{}], [{"function": 5}]])
def test_odd_tool_calls_are_left_out(calls: object) -> None:
    assert chat_text([{"role": "assistant", "tool_calls": calls}]) == chat_text([{"role": "assistant"}])


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("The secret word is marzipan.", "marzipan"),
        ("x" * 999 + " The secret word is Köln. " + "y" * 999 + " What is it?", "Köln"),
        ("The secret word is old. No: The secret word is new.", "new"),
        ("The secret word is two words.", ""),
        ("What is the secret word?", ""),
    ],
)
def test_planted_word_is_found(said: str, word: str) -> None:
    assert planted_word(chat_text([user(said), {"role": "assistant", "content": "Yes?"}])) == word
