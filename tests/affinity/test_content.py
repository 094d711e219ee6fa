"""What one message says, in canonical text."""

from typing import Any

import pytest
from hypothesis import given

from replicarouter.affinity.content import LONGEST_JSON, add_content, add_item, add_more
from replicarouter.affinity.pieces import MEDIA_CHARACTERS, MOST_COST, PIECE_COST, Pieces
from replicarouter.protocol.json_values import Opaque
from tests.affinity.bodies import CALL, VALUES, Fields, image, said
from tests.properties import examples


def text(content: Any) -> str:
    pieces = Pieces()
    add_content(pieces, content)
    return pieces.encoded().decode("utf-8", "surrogatepass")


def more(message: Fields) -> str:
    pieces = Pieces()
    add_more(pieces, message)
    return pieces.encoded().decode("utf-8", "surrogatepass")


def part(words: str, **fields: Any) -> Fields:
    return {"type": "text", "text": words, **fields}


def test_words_are_taken_as_they_are() -> None:
    assert text("hello") == text([part("hello")]) == text([{"text": "hello"}]) == text(["hello"]) == "hello"
    assert text([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]) == "a\nb"
    assert text(None) == text([]) == ""


MEDIA = {
    "image": image(),
    "image of the responses API": {"type": "input_image", "image_url": "https://x/y.png"},
    "image of Anthropic": {"type": "image", "source": {"type": "base64", "data": "aGVsbG8="}},
    "image without a type": {"image_url": "https://x/y.png"},
    "audio": {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
    "video": {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}},
    "file": {"type": "file", "file": {"file_id": "f1"}},
    "document": {"type": "document", "source": {"type": "text", "data": "hello"}},
    "too large to be built": {"type": "image_url", "image_url": {"url": Opaque(7, 2**22, "data:")}},
    "unknown and long": {"type": "smell", "base64": "x" * LONGEST_JSON},
}


@pytest.mark.parametrize("name", MEDIA)
def test_what_is_no_text_weighs_the_same_whatever_its_size(name: str) -> None:
    assert len(text([MEDIA[name]])) == MEDIA_CHARACTERS
    assert len({text([one]) for one in MEDIA.values()}) == len(MEDIA)


def test_images_differ_by_their_content_alone() -> None:
    data = "data:image/png;base64," + "A" * 100_000
    assert text([image(data)]) == text([image("" + data)])
    assert text([image(data + "A")]) != text([image(data + "B")])
    assert text([image(data)]) == text([{**image(data), "cache_control": {"type": "ephemeral"}}])
    one, other = Opaque(1, 2**22, data), Opaque(2, 2**22, data)
    assert text([{"type": "image_url", "image_url": one}]) != text(
        [{"type": "image_url", "image_url": other}]
    )


def test_an_opaque_text_is_its_start_and_what_it_hashes_to() -> None:
    assert text(Opaque(1, 2**22, "once")).startswith("once")
    assert text(Opaque(1, 2**22, "once")) != text(Opaque(2, 2**22, "once"))


def test_results_of_tools_are_read_like_messages() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [part("blue"), image()]}
    said = text([result])
    assert "blue\n" + text([image()]) in said
    assert text([{**result, "cache_control": {"type": "ephemeral"}}]) == said
    assert text([{**result, "content": "red"}]) != text([{**result, "content": "blue"}])


def test_the_mark_that_moves_on_with_every_turn_does_not_count() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sky"}}
    assert text([{**call, "cache_control": {"type": "ephemeral"}}]) == text([call])
    assert text([part("a", cache_control={"type": "ephemeral"})]) == text("a")
    assert more({"role": "user", "content": "a", "cache_control": {"type": "ephemeral"}}) == ""


def test_what_a_message_lacks_may_be_null_empty_or_left_out() -> None:
    lacking: Fields = {"refusal": None, "tool_calls": [], "audio": None, "name": "", "id": "m1"}
    assert more({"role": "user", "content": "a", **lacking}) == ""
    assert "look" in more({"role": "assistant", "content": None, "tool_calls": [CALL]})
    assert more({"tool_calls": [CALL]}) != more({"tool_calls": [{**CALL, "type": "other"}]})


def test_items_without_a_role_say_what_they_are() -> None:
    pieces = Pieces()
    add_item(pieces, {"type": "function_call_output", "call_id": "c1", "output": "blue"})
    add_item(pieces, {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"})
    assert pieces.encoded() == b"\x1efunction_call_output\nblue\x1efunction_call\nnamelookarguments{}"


def test_nesting_of_any_depth_ends() -> None:
    value: Any = 1
    contents: Any = "a"
    for _ in range(5000):
        value = [value]
        contents = [{"type": "tool_result", "content": contents}]
    assert text(value)
    assert text(contents)


@pytest.mark.parametrize("part", ["", None, [], {}, {"type": "smell"}, image(), {"content": "a"}, ["\ud800"]])
def test_thousands_of_parts_are_not_all_looked_at(part: Any) -> None:
    many = MOST_COST // PIECE_COST
    assert text([part] * many) == text([part] * 2 * many)
    assert len(text([part] * many)) <= MOST_COST


@pytest.mark.parametrize("part", ["", {"type": "text", "text": ""}])
def test_nor_are_thousands_of_texts(part: Any) -> None:
    assert len(text([part] * 2 * MOST_COST)) <= MOST_COST // PIECE_COST


@pytest.mark.parametrize("value", [1, "a", ["\ud800"], [2**70], {"base64": "a" * LONGEST_JSON}])
def test_thousands_of_fields_are_not_all_looked_at(value: Any) -> None:
    """Within one message, where no end of a message is in sight."""
    many = 2 * MOST_COST // PIECE_COST
    message = said("user", "a", **{f"k{number}": value for number in range(2 * many)})
    looked_at = more(message)
    assert looked_at == more(dict(list(message.items())[:many]))
    assert len(looked_at) <= MOST_COST


@examples(300)
@given(VALUES)
def test_no_value_whatever_raises(value: Any) -> None:
    pieces = Pieces()
    add_content(pieces, value)
    add_item(pieces, value)
    assert pieces.encoded() == pieces.encoded()
