"""What is said in passing about an answer agrees with what a parser of its JSON would say."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replicarouter.protocol.content import Usage, begins_answer, begins_reasoning, find_usage
from tests.properties import examples

ANSWER_KEYS = ["content", "text", "arguments", "partial_json"]
REASONING_KEYS = ["reasoning", "reasoning_content", "thinking"]
OTHER_KEYS = ["role", "id", "delta", "choices", "index", "usage_of", "contents", "x", "refusal"]

# Texts that a model might write to look like the fields around them.
TEXT = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            '"content":"x"',
            '","content":"x',
            '\\"text\\":\\"',
            '"usage":{"prompt_tokens":9}',
            "\\",
            '"',
            "response.output_text.delta ",
        ]
    ),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), st.just(""), TEXT)
KEY = st.sampled_from([*ANSWER_KEYS, *REASONING_KEYS, *OTHER_KEYS])
DOCUMENT: st.SearchStrategy[Any] = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEY, inner, max_size=4)),
    max_leaves=8,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])
"""As engines write JSON: compact, or with one blank."""

COUNT = st.integers(0, 10**9)


def fields(document: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object in it, with its value."""
    if isinstance(document, dict):
        yield from document.items()
    values = document.values() if isinstance(document, dict) else document
    if isinstance(document, dict | list):
        for value in values:
            yield from fields(value)


def carries(document: Any, keys: list[str]) -> bool:
    return any(key in keys and isinstance(value, str) and value != "" for key, value in fields(document))


def event(document: Any, separators: tuple[str, str], *, ascii_only: bool) -> bytes:
    text = json.dumps(document, separators=separators, ensure_ascii=ascii_only)
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


@examples(300)
@given(DOCUMENT, SEPARATORS, st.booleans())
def test_content_begins_where_a_parser_finds_text(
    document: Any, separators: tuple[str, str], ascii_only: bool
) -> None:
    data = event(document, separators, ascii_only=ascii_only)
    assert begins_answer(data) == carries(document, ANSWER_KEYS)
    assert begins_reasoning(data) == carries(document, REASONING_KEYS)


@examples(200)
@given(st.lists(TEXT, max_size=4), SEPARATORS)
def test_text_that_a_model_wrote_is_never_taken_for_a_field(
    texts: list[str], separators: tuple[str, str]
) -> None:
    data = event({"role": texts}, separators, ascii_only=False)
    assert not begins_answer(data)
    assert not begins_reasoning(data)
    assert find_usage(data) is None


@st.composite
def usage_records(draw: st.DrawFn) -> tuple[dict[str, Any], Usage]:
    """A usage record as one of the APIs writes it, and what it says."""
    prompt, completion, cached = draw(COUNT), draw(COUNT), draw(COUNT)
    names, details = draw(
        st.sampled_from(
            [
                (("prompt_tokens", "completion_tokens"), "prompt_tokens_details"),
                (("input_tokens", "output_tokens"), "input_tokens_details"),
            ]
        )
    )
    record: dict[str, Any] = {names[0]: prompt, names[1]: completion, "total_tokens": prompt + completion}
    how = draw(st.sampled_from(["details", "null", "none", "read"]))
    if how == "details":
        record[details] = {"cached_tokens": cached, "audio_tokens": None}
    elif how == "null":
        record[details] = None
    elif how == "read":
        record["cache_read_input_tokens"] = cached
    keys = draw(st.permutations(sorted(record)))
    said = Usage(prompt, completion, cached if how in {"details", "read"} else None)
    return {key: record[key] for key in keys}, said


@examples(300)
@given(
    before=st.lists(DOCUMENT, max_size=3),
    earlier=st.one_of(st.none(), usage_records()),
    last=usage_records(),
    choices=DOCUMENT,
    separators=SEPARATORS,
)
def test_the_last_usage_record_is_what_a_parser_reads(
    before: list[Any],
    earlier: tuple[dict[str, Any], Usage] | None,
    last: tuple[dict[str, Any], Usage],
    choices: Any,
    separators: tuple[str, str],
) -> None:
    documents = [*before, *([{"usage": earlier[0]}] if earlier else [])]
    documents.append({"choices": choices, "usage": last[0]})
    stream = b"".join(event(one, separators, ascii_only=False) for one in documents)
    assert find_usage(stream + b"data: [DONE]\n\n") == last[1]


@examples(300)
@given(record=usage_records(), data=st.data())
def test_a_record_that_is_cut_is_no_record(record: tuple[dict[str, Any], Usage], data: st.DataObject) -> None:
    text = json.dumps({"usage": record[0]}).encode()
    kept = data.draw(st.integers(0, len(text) - 2))
    assert find_usage(text[:kept]) is None


@examples(500)
@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_break_the_look(noise: bytes, prefixed: bool) -> None:
    data = b'"usage":{' + noise if prefixed else noise
    begins_answer(data)
    begins_reasoning(data)
    find_usage(data)
