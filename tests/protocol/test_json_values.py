"""Values of a large body are built in steps as a parser builds them; what is too large is hashed."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.protocol import json_scan, json_values
from replicarouter.protocol.json_scan import WINDOW
from replicarouter.protocol.json_values import MOST_AT_ONCE, MOST_BUILT, Opaque, ValueBuilder
from tests.properties import examples

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False)
)
TEXT = st.one_of(st.text(max_size=30), st.text(alphabet='"\\{}[],: \né😀', max_size=30))
VALUES = st.recursive(
    st.one_of(SCALARS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(TEXT, inner, max_size=6)),
    max_leaves=30,
)


def build(body: bytes, start: int = 0) -> tuple[Any, int]:
    """The value, and how many steps it took."""
    steps = ValueBuilder(body).build((start, len(body)))
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def whole(value: Any) -> Any:
    """The value with the texts that were too large, whose start is all of them here."""
    if type(value) is list:
        return [whole(one) for one in value]
    if type(value) is dict:
        return {name: whole(one) for name, one in value.items()}
    return value.start if type(value) is Opaque else value


@examples(400)
@given(VALUES, st.booleans(), st.sampled_from([None, 2]), st.sampled_from([30, 60]))
def test_values_are_those_of_a_parser(value: Any, escaped: bool, indent: int | None, limit: int) -> None:
    """So little is parsed in one go that every kind of value is built of parts."""
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    body = text.encode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_AT_FIRST", 8)
        patch.setattr(json_values, "MOST_AT_ONCE", limit)
        patch.setattr(json_values, "_MOST_NESTED", 1000)
        patch.setattr(json_scan, "WINDOW", limit)
        built, _ = build(b" " * 3 + body, 3)
    assert whole(built) == json.loads(body)


@examples(500)
@given(st.one_of(st.binary(max_size=40), st.text(alphabet='{}[]",:\\1a \n', max_size=40).map(str.encode)))
def test_any_bytes_end_in_some_value(body: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_AT_FIRST", 2)
        patch.setattr(json_values, "MOST_AT_ONCE", 4)
        built, _ = build(body)
        assert repr(built) == repr(build(body)[0])
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if not body[:1].isspace():
            assert type(built) is type(document) or type(built) is Opaque


IMAGE = b'"data:image/png;base64,' + b"A" * 5_000_000 + b'"'


def message(url: bytes) -> bytes:
    return b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":%b}}]},{"role":"x"}]' % url


def test_of_a_large_message_all_is_built_but_its_image() -> None:
    built, steps = build(message(IMAGE))
    url = built[0]["content"][0]["image_url"]["url"]
    assert type(url) is Opaque
    assert url.size == len(IMAGE) - 2
    assert url.start.startswith("data:image/png")
    built[0]["content"][0]["image_url"]["url"] = "u"
    assert built == json.loads(message(b'"u"'))
    assert steps < 100, "a long text is passed over at the speed of memory"


def test_images_that_differ_in_one_byte_differ() -> None:
    digests = set()
    for place in (30, 2_000_000, 4_500_000):
        url = IMAGE[:place] + b"B" + IMAGE[place + 1 :]
        digests.add(build(message(url))[0][0]["content"][0]["image_url"]["url"].digest)
    assert len(digests) == 3


TEXTS = {
    "plain": "words of a text " * 200_000,
    "escapes": 'say "hi"\n' * 300_000,
    "many planes": "a é 漢 😀 " * 200_000,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("shift", range(13))
def test_the_start_of_a_large_text_is_cut_between_characters(name: str, escaped: bool, shift: int) -> None:
    text = "x" * shift + TEXTS[name]
    built, _ = build(json.dumps(text, ensure_ascii=escaped).encode())
    assert type(built) is Opaque
    assert text.startswith(built.start)
    assert len(built.start) > 50_000


MANY = {
    "short messages": b'{"role":"user","content":"hi"}',
    "messages in parts": b'{"role":"user","content":[{"type":"text","text":"hi"}]}',
    "deep": b'{"role":"user","content":[{"x":{"y":[[{"z":[1]}]]}}]}',
    "texts": b'"hi"',
    "numbers": b"1234567",
    "long messages": b'{"role":"user","content":"' + b"word " * 10_000 + b'"}',
}


@pytest.mark.parametrize("name", MANY)
def test_many_values_are_built_in_steps_up_to_a_bound(name: str) -> None:
    count = 8_000_000 // len(MANY[name])
    built, steps = build(b"[" + b",".join([MANY[name]] * count) + b"]")
    assert built == [json.loads(MANY[name])] * len(built)
    size = len(built) * (len(MANY[name]) + 1)
    assert MOST_BUILT / 4 < size < MOST_BUILT + MOST_AT_ONCE
    assert steps > size / WINDOW / 2


def test_fields_count_toward_the_bound_too() -> None:
    built, steps = build(b"{" + b",".join(b'"field %d":1' % number for number in range(500_000)) + b"}")
    assert 10_000 < len(built) < 200_000
    assert steps > 20


def test_what_is_nested_deeper_than_images_are_is_not_built() -> None:
    built, steps = build(b"[" * 600_000 + b"]" * 600_000)
    for _ in range(5):
        assert type(built) is list
        (built,) = built
    assert type(built) is Opaque
    assert steps < 2500, "its end is looked for in earnest only once"


def test_what_is_no_json_is_hashed() -> None:
    one, other = (build(b'["a",' + b"x" * 10 + end)[0] for end in (b"1]", b"2]"))
    assert (type(one), type(other)) == (Opaque, Opaque)
    assert one.digest != other.digest


def test_values_that_python_alone_takes_are_built() -> None:
    assert build(b'["\\ud800",NaN,1]')[0][::2] == ["\ud800", 1]
