"""The stable head of a conversation: one in all its turns, another in another conversation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.affinity.continuations import MOST_HEIRS, Continuations
from replicarouter.affinity.head import head_of
from replicarouter.affinity.reader import KeyReader
from tests.affinity import bodies
from tests.affinity.bodies import CALL, MESSAGES, SHAPES, TOOL, VALUES, Fields, image, said
from tests.properties import examples

SYSTEM = "You are the assistant of a company. " * 200


def head(fields: Fields) -> int | None:
    return head_of(fields, Continuations())


def chat(*messages: Any, **fields: Any) -> Fields:
    return {**fields, "messages": list(messages)}


LATER: dict[str, list[Any]] = {
    "chat": [said("assistant", "hi"), said("user", "and now?"), said("assistant", "so"), said("user", "ok")],
    "tools": [said("assistant", None, tool_calls=[CALL]), said("tool", "blue", tool_call_id="c1")],
    "anthropic": [
        said("assistant", [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]),
        said("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "blue"}]),
    ],
    "responses": [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "blue"}]},
    ],
}

FIRST: dict[str, list[Any]] = {
    "a question": [said("user", "hello")],
    "instructions before it": [said("system", SYSTEM), said("user", "hello")],
    "instructions behind it": [said("user", "hello"), said("developer", "be kind")],
    "two questions": [said("user", "hello"), said("user", "are you there?")],
    "an image": [said("user", [{"type": "text", "text": "what"}, image()])],
    "a greeting before it": [said("assistant", "How can I help?"), said("user", "hello")],
    "an item": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", ["messages", "input"])
def test_every_turn_has_the_same_head(first: str, later: str, name: str) -> None:
    fields: Fields = {"tools": [TOOL], "system": "be kind"}
    heads = {head({**fields, name: FIRST[first] + LATER[later][:count]}) for count in range(5)}
    assert len(heads) == 1
    assert None not in heads


@pytest.mark.parametrize("value", [1, ["\ud800"], {"base64": "a"}])
def test_a_message_that_is_cut_has_the_same_head_in_every_turn(value: Any) -> None:
    wide = said("user", "hello", **{f"k{number}": value for number in range(10_000)})
    heads = {head(chat(wide, *LATER["chat"][:count])) for count in range(5)}
    assert len(heads) == 1


@examples(200)
@given(st.lists(MESSAGES, max_size=5), st.text())
def test_whatever_follows_the_first_answer_does_not_matter(later: list[Any], question: str) -> None:
    first = [said("system", SYSTEM), said("user", question)]
    assert head(chat(*first, said("assistant", "hi"), *later)) == head(chat(*first))


def test_users_who_share_all_but_their_question_differ() -> None:
    """H72"""
    heads = {
        head(chat(said("system", SYSTEM), said("assistant", "Hello!"), said("user", f"question {number}")))
        for number in range(200)
    }
    assert len(heads) == 200


@pytest.mark.parametrize("role", ["context", "", 5, None, ["user"]])
def test_roles_nobody_knows_do_not_end_a_head(role: Any) -> None:
    """Or all users of an application with roles of its own would have one head."""
    one, other = (chat(said(role, "the same"), said("user", question)) for question in ("a", "b"))
    assert head(one) != head(other)


def test_single_messages_from_one_template_differ() -> None:
    heads = {head(chat(said("user", f"{SYSTEM} question {number}"))) for number in range(200)}
    assert len(heads) == 200


def test_tools_and_instructions_belong_to_it() -> None:
    question = said("user", "hello")
    several = [chat(question), chat(question, tools=[TOOL]), chat(question, system="be kind")]
    several.append(chat(said("system", "be cruel"), question))
    assert len({head(one) for one in several}) == 4


def test_conversations_whose_images_differ_differ() -> None:
    """H73"""
    one, other = (chat(said("user", [image(f"data:image/png;base64,{data}")])) for data in ("AAAA", "AAAB"))
    assert head(one) != head(other)


@pytest.mark.parametrize("name", ["prompt", "input", "text"])
def test_raw_prompts_stay_together_by_what_went_before(name: str) -> None:
    memory = Continuations()
    prompt = SYSTEM + "User: hello"
    first = head_of({name: prompt}, memory)
    for turn in range(5):
        prompt += f" Assistant: hi. User: and {turn}?"
        assert head_of({name: prompt}, memory) == first
    others = {head_of({name: f"{SYSTEM}User: question {number}?"}, memory) for number in range(100)}
    assert len(others) == 100
    assert first not in others


@pytest.mark.parametrize("name", ["prompt", "input_ids", "token_ids"])
def test_so_do_token_ids(name: str) -> None:
    memory = Continuations()
    ids = list(range(1000))
    first = head_of({name: ids}, memory)
    assert head_of({name: [*ids, 7, 8, 9]}, memory) == first
    assert head_of({name: [*ids[:-1], 7]}, memory) != first


def test_a_text_that_comes_back_as_a_message_has_its_head() -> None:
    first = {"instructions": "be kind", "input": "hello"}
    later = {**first, "input": [said("user", "hello"), said("assistant", "hi"), said("user", "and now?")]}
    assert head(first) == head(later)


def test_another_salt_is_another_conversation() -> None:
    for fields in (chat(said("user", "hello")), {"prompt": "hello"}, {"prompt": ["a", "b"]}):
        memory = Continuations()
        assert head_of({**fields, "cache_salt": "a"}, memory) != head_of(
            {**fields, "cache_salt": "b"}, memory
        )


@pytest.mark.parametrize(
    "fields",
    [{}, {"messages": []}, {"prompt": ""}, {"prompt": []}, {"prompt": [""]}, {"query": "a"}, {"system": "a"}],
)
def test_without_a_prompt_there_is_none(fields: Fields) -> None:
    assert head({"tools": [TOOL], **fields}) is None


def test_heads_of_messages_are_the_same_in_every_process() -> None:
    """Routers must agree, and a restart must move no conversation."""
    assert head(chat(said("user", "hello"))) == 0x475CDDA900C8ACE8


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_body_has_the_same_head(name: str) -> None:
    reader = KeyReader([], stick_to_api_key=False)
    heads = {bodies.head_of(SHAPES[name], reader) for _ in range(20)}
    assert len(heads) == 1


def test_a_template_sent_alone_gathers_few() -> None:
    memory = Continuations()
    alone = head_of({"prompt": SYSTEM}, memory)
    heads = [head_of({"prompt": f"{SYSTEM}{number}?"}, memory) for number in range(100)]
    assert heads.count(alone) == MOST_HEIRS


@examples(500)
@given(st.dictionaries(st.sampled_from(["messages", "prompt", "input", "tools", "cache_salt"]), VALUES))
def test_no_body_whatever_raises(fields: Fields) -> None:
    found = head(fields)
    assert found is None or 0 <= found < 2**64
