"""The scan of a large JSON object finds what a parser finds, in short steps."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.protocol import json_scan
from replicarouter.protocol.json_scan import WINDOW, BadJson, scan_object
from tests.properties import examples

NAMES = ("model", "stream")

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False)
)
TEXT = st.one_of(st.text(), st.text(alphabet='"\\{}[],: \nu', max_size=12))
VALUES = st.recursive(
    st.one_of(SCALARS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)
NAME = st.one_of(st.sampled_from([*NAMES, "Model", "mode", ""]), TEXT)
OBJECTS = st.dictionaries(NAME, VALUES, max_size=6)


def scan(body: bytes) -> tuple[dict[str, Any], int]:
    """The values found, and how many steps it took."""
    steps = scan_object(body, NAMES)
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return {name: json.loads(body[start:end]) for name, (start, end) in done.value.items()}, count
        count += 1


def wanted(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in NAMES if name in document}


@examples(300)
@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]), st.sampled_from(["", " ", "\r\n\t"]))
def test_what_a_parser_finds_is_found(
    document: dict[str, Any], escaped: bool, indent: int | None, around: str
) -> None:
    text = around + json.dumps(document, ensure_ascii=escaped, indent=indent) + around
    assert scan(text.encode("utf-8", "replace"))[0] == wanted(json.loads(text.encode("utf-8", "replace")))


@examples(200)
@given(OBJECTS)
def test_small_windows_change_nothing(document: dict[str, Any]) -> None:
    """So small that every kind of value reaches over the edge of one."""
    body = json.dumps(document).encode()
    with pytest.MonkeyPatch.context() as patch:
        for window in (1, 2, 3, 7):
            patch.setattr(json_scan, "WINDOW", window)
            assert scan(body)[0] == wanted(document)


@examples(300)
@given(st.lists(st.tuples(NAME, VALUES), max_size=5))
def test_of_a_repeated_field_the_last_counts(fields: list[tuple[str, Any]]) -> None:
    body = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields) + "}"
    assert scan(body.encode())[0] == wanted(json.loads(body))


@examples(300)
@given(OBJECTS, st.data())
def test_a_cut_object_is_never_taken_for_one(document: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(document).encode()
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(BadJson):
        scan(cut)


@examples(500)
@given(st.one_of(st.binary(max_size=40), st.text(alphabet='{}[]":,\\model1 \n', max_size=30).map(str.encode)))
def test_any_bytes_end_in_an_answer_and_no_valid_object_is_refused(body: bytes) -> None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    try:
        found, _ = scan(body)
    except BadJson:
        assert not isinstance(document, dict)
    except ValueError:
        assert document is None
    else:
        assert document is None or found == wanted(document)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b'"x"',
        b"null",
        b'{"model":"m1"}x',
        b'{"model":"m1"}{}',
        b'{"model" "m1"}',
        b'{"model":}',
        b'{"model":"m1",}',
        b"{,}",
        b'{model:"m1"}',
        b'{"model":"m1" "stream":1}',
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadJson):
        scan(body)


def test_what_engines_take_beyond_json_is_passed_over() -> None:
    body = b'\xef\xbb\xbf{"a":NaN,"b":[-Infinity],"c":"\\ud800","model":"m1"}'
    assert scan(body)[0] == {"model": "m1"}


LARGE = {
    "plain string": b'"' + b"x" * 3_000_000 + b'"',
    "escaped quotes": b'"' + b'\\"' * 1_500_000 + b'"',
    "backslashes": b'"' + b"\\" * 3_000_000 + b'"',
    "sparse escapes": b'"' + b'text with \\"escapes\\" ' * 150_000 + b'"',
    "numbers": b"[" + b"12345," * 500_000 + b"0]",
    "brackets": b"[" + b"[]," * 1_000_000 + b"0]",
    "deep": b"[" * 1_000_000 + b"]" * 1_000_000,
    "messages": b"[" + b'{"role":"user","content":[{"text":"hi"}]},' * 70_000 + b"0]",
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("nested", [False, True])
def test_a_large_value_is_passed_over_in_steps(value: bytes, nested: bool) -> None:
    body = b'{"x":' + (b'{"y":[%b]}' % value if nested else value) + b',"model":"m1"}'
    found, steps = scan(body)
    assert found == {"model": "m1"}
    if value is not LARGE["plain string"]:
        assert steps >= len(value) / WINDOW / 2


def test_many_fields_are_passed_over_in_steps() -> None:
    found, steps = scan(b'{"model":"m1",' + b'"a":1,' * 100_000 + b'"b":2}')
    assert found == {"model": "m1"}
    assert steps > 100
