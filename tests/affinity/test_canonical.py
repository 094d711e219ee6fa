"""The canonical text of a prompt, for any API."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.affinity.canonical import (
    PROMPT_FIELDS,
    add_opening,
    cache_seed,
    canonical_text,
    find_prompt,
)
from replicarouter.affinity.pieces import MOST_COST, PIECE_COST, Pieces
from replicarouter.protocol.json_values import Opaque
from replicarouter.protocol.request import KEY_FIELDS
from tests.affinity.bodies import MESSAGES, PNG, SHAPES, TOOL, VALUES, Fields, image, said
from tests.properties import examples

MANY = MOST_COST // PIECE_COST


def chat(*messages: Any, **fields: Any) -> Fields:
    return {**fields, "messages": list(messages)}


def test_it_is_in_the_order_of_templates() -> None:
    fields = chat(said("user", "hello"), said("assistant", "hi"), system="be kind", tools=[TOOL])
    text = canonical_text(fields).decode()
    assert text == canonical_text(dict(reversed(fields.items()))).decode()
    places = [text.index(words) for words in ("look", "be kind", "hello", "hi")]
    assert places == sorted(places)


@examples(300)
@given(
    st.lists(MESSAGES, max_size=6),
    st.lists(MESSAGES, min_size=1, max_size=3),
    st.sampled_from([{}, {"tools": [TOOL], "system": "be kind"}]),
)
def test_messages_that_are_appended_only_append(
    messages: list[Any], appended: list[Any], opening: Fields
) -> None:
    before = canonical_text(chat(said("user", "a"), *messages, **opening))
    after = canonical_text(chat(said("user", "a"), *messages, *appended, **opening))
    assert after.startswith(before)


@examples(100)
@given(st.text(max_size=300), st.text(max_size=300), st.sampled_from(["prompt", "input", "text"]))
def test_a_raw_prompt_that_goes_on_only_appends(start: str, more: str, name: str) -> None:
    assert canonical_text({name: start + more}).startswith(canonical_text({name: start}))


@examples(100)
@given(
    st.lists(st.integers(0, 200_000), min_size=1),
    st.lists(st.integers(0, 200_000)),
    st.sampled_from(["prompt", "input_ids", "token_ids"]),
)
def test_a_token_takes_four_characters(start: list[int], more: list[int], name: str) -> None:
    before, after = canonical_text({name: start}), canonical_text({name: start + more})
    assert after.startswith(before)
    assert len(after) == 4 * len(start + more)


def test_every_change_of_what_an_engine_sees_shows() -> None:
    base = chat(said("user", "hello"), tools=[TOOL], system="be kind")
    others = [
        chat(said("user", "hullo"), tools=[TOOL], system="be kind"),
        chat(said("assistant", "hello"), tools=[TOOL], system="be kind"),
        chat(said("user", "hello"), tools=[TOOL, TOOL], system="be kind"),
        chat(said("user", "hello"), tools=[TOOL], system="be cruel"),
        chat(said("user", "hello"), said("user", ""), tools=[TOOL], system="be kind"),
        chat(said("user", [{"type": "text", "text": "hello"}, image()]), tools=[TOOL], system="be kind"),
    ]
    assert len({canonical_text(one) for one in (base, *others)}) == 1 + len(others)


SAME = {
    "a text and a list with it": (
        chat(said("user", "hello")),
        chat(said("user", [{"type": "text", "text": "hello"}])),
    ),
    "one prompt and a list with it": ({"prompt": "once"}, {"prompt": ["once"]}),
    "token ids and a list with them": ({"prompt": [1, 2]}, {"prompt": [[1, 2]]}),
    "input and its message": ({"input": "hello"}, {"input": [said("user", "hello")]}),
    "system as text and in blocks": (
        chat(said("user", "a"), system="be kind"),
        chat(said("user", "a"), system=[{"type": "text", "text": "be kind", "cache_control": {}}]),
    ),
    "nulls and nothing": (
        chat(said("user", "a")),
        chat(said("user", "a", name=None, tool_calls=None), tools=None, system=None),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_engines_see_alike_is_alike(name: str) -> None:
    one, other = SAME[name]
    assert canonical_text(one) == canonical_text(other) != b""


def test_images_beside_a_text_come_before_it() -> None:
    one, other = ({"text": "what is it", "image_data": [data]} for data in (PNG, PNG + "A"))
    assert canonical_text(one)[:512] != canonical_text(other)[:512]
    assert canonical_text({"text": "a", "image_data": PNG}) == canonical_text(
        {"text": "a", "image_data": [PNG]}
    )


def test_several_prompts_are_told_apart() -> None:
    several: list[Fields] = [{"prompt": ["a", "bc"]}, {"prompt": ["ab", "c"]}, {"prompt": ["abc"]}]
    several += [{"prompt": [[1, 2], [3]]}, {"prompt": [[1], [2, 3]]}, {"prompt": [1, 2, 3]}]
    assert len({canonical_text(one) for one in several}) == len(several)


def test_where_several_fields_hold_a_prompt_one_counts() -> None:
    for index, name in enumerate(PROMPT_FIELDS):
        fields = {later: f"by {later}" for later in reversed(PROMPT_FIELDS[index:])}
        assert find_prompt(fields) == (name, f"by {name}")
    assert find_prompt({"query": "a", "documents": ["b"]}) == ("", None)


def test_a_body_without_a_prompt_has_no_text() -> None:
    assert canonical_text({"query": "a", "documents": ["b"], "tools": [TOOL]}) == b""


def test_of_a_prompt_too_large_to_be_built_its_start_counts() -> None:
    assert canonical_text({"prompt": Opaque(1, 2**22, "once")}) == canonical_text({"prompt": "once"})


def test_a_message_too_large_to_be_built_is_one_like_any() -> None:
    opaque = Opaque(1, 2**22, "once")
    before, after = canonical_text(chat(opaque)), canonical_text(chat(opaque, said("user", "a")))
    assert after.startswith(before)
    assert before != canonical_text(chat(Opaque(2, 2**22, "once")))


def test_another_salt_is_another_seed() -> None:
    assert cache_seed({"cache_salt": "a"}) != cache_seed({"cache_salt": "b"}) != 0
    assert cache_seed({}) == cache_seed({"cache_salt": ""}) == cache_seed({"cache_salt": 5}) == 0


def test_only_fields_are_read_that_are_built_of_large_bodies() -> None:
    class Watched(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            assert name in KEY_FIELDS
            return super().get(name, default)

    canonical_text(Watched(text="a"))
    add_opening(Pieces(), Watched())
    cache_seed(Watched())
    assert set(PROMPT_FIELDS) <= KEY_FIELDS


def test_thousands_of_messages_are_not_all_looked_at() -> None:
    messages: list[Any] = [said("user", "a"), [], "", {"type": "x", "content": [{}]}]
    for message in messages:
        few, more = chat(*[message] * 2 * MANY), chat(*[message] * 3 * MANY)
        assert canonical_text(few) == canonical_text(more)


@pytest.mark.parametrize("name", ["image_data", "video_data", "audio_data"])
def test_nor_are_thousands_of_images_beside_a_text(name: str) -> None:
    few, more = ({"text": "a", name: [1] * count} for count in (MANY, 2 * MANY))
    assert canonical_text(few) == canonical_text(more)
    assert len(canonical_text(more)) <= MOST_COST


@pytest.mark.parametrize("name", ["tools", "functions", "documents", "system", "instructions"])
@pytest.mark.parametrize("value", [1e15, ["\ud800"], {"a": 2**70}])
def test_openings_are_bounded_too(name: str, value: Any) -> None:
    text = canonical_text({"prompt": "a", name: [value] * 50 * MANY})
    assert len(text) <= MOST_COST + 100


@pytest.mark.parametrize("prompt", [[1], [-1], ["a"], [1, "\ud800"]])
def test_so_are_several_prompts(prompt: list[Any]) -> None:
    few, more = ({"prompt": [prompt] * count} for count in (MANY, 2 * MANY))
    assert canonical_text(few) == canonical_text(more)
    assert len(canonical_text(more)) <= MOST_COST


def test_a_message_is_cut_at_the_same_place_in_every_turn() -> None:
    wide = said("user", "hello", **{f"k{number}": ["\ud800"] for number in range(MANY)})
    before = canonical_text(chat(wide))
    later = [said("assistant", "hi"), said("user", "and now?")]
    assert canonical_text(chat(wide, *later)) == before


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_one_text(name: str) -> None:
    assert canonical_text(SHAPES[name]) == canonical_text(SHAPES[name])
    assert bool(canonical_text(SHAPES[name])) is (name not in ("nothing", "nulls", "no messages"))


@examples(500)
@given(st.dictionaries(st.sampled_from(sorted(KEY_FIELDS)), VALUES, max_size=5))
def test_no_body_whatever_raises(fields: Fields) -> None:
    assert canonical_text(fields) == canonical_text(fields)
