"""Keys of whole requests: as many as are wanted, the same for the same body, whatever the body is."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from replicarouter.affinity.pieces import MEDIA_CHARACTERS
from replicarouter.affinity.reader import KeyReader
from replicarouter.errors import InvalidRequest
from replicarouter.protocol.endpoints import Body, Endpoints
from replicarouter.protocol.request import (
    BLOCK_CHARACTERS,
    KEY_FIELDS,
    InferenceRequest,
    Needs,
    understand,
    understand_large,
)
from tests.affinity.bodies import (
    ALL,
    MESSAGES,
    SHAPES,
    VALUES,
    Fields,
    blocks_of,
    image,
    keys_of,
    no_headers,
    request_of,
    said,
)
from tests.properties import examples

CHAT = Endpoints().find("/v1/chat/completions")
Keys = tuple[int | None, int | None, list[int], int]


def keys(request: InferenceRequest) -> Keys:
    return request.session, request.head, list(request.blocks), request.characters


def read_whole(body: bytes, needs: Needs = ALL) -> InferenceRequest:
    assert CHAT is not None
    request = understand(CHAT, Body.JSON, body, encoded=False, must_read=True)
    KeyReader([], stick_to_api_key=False).read(request, no_headers(), needs)
    return request


def read_in_steps(body: bytes, needs: Needs = ALL) -> InferenceRequest:
    assert CHAT is not None
    steps = understand_large(CHAT, body, wants_keys=True)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            request: InferenceRequest = done.value
            break
    KeyReader([], stick_to_api_key=False).read(request, no_headers(), needs)
    return request


LONG = {"messages": [said("user", "once upon a time " * 200)], "user": "u1"}


@pytest.mark.parametrize("needs", [Needs(value) for value in range(8)])
def test_only_what_is_wanted_is_read_and_the_body_is_let_go(needs: Needs) -> None:
    request = keys_of(LONG, needs=needs)
    assert request.fields is None
    assert (request.session is not None) is (Needs.SESSION in needs)
    assert (request.head is not None) is (needs & ~Needs.BLOCKS == Needs.HEAD), "the session comes first"
    assert bool(request.blocks) is bool(request.characters) is (Needs.BLOCKS in needs)


@pytest.mark.parametrize(
    "path", ["/tokenize", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/audio/speech"]
)
def test_a_prompt_that_no_cache_keeps_has_no_blocks(path: str) -> None:
    """Or its tokens would be taken for cached at the replica that only counted them."""
    endpoint = Endpoints().find(path)
    assert endpoint is not None
    for fields in (LONG, {**LONG, "user": None}):
        request = InferenceRequest(endpoint, "m1", fields=fields)
        KeyReader([], stick_to_api_key=False).read(request, no_headers(), ALL)
        assert (list(request.blocks), request.characters) == ([], 0)
        assert (request.session, request.head) == (keys_of(fields).session, keys_of(fields).head)


def test_there_is_a_block_for_each_whole_one() -> None:
    request = keys_of(LONG)
    assert request.block_characters == BLOCK_CHARACTERS
    assert len(request.blocks) == request.characters // BLOCK_CHARACTERS


def test_a_header_is_read_where_there_is_no_body() -> None:
    headers = CIMultiDictProxy(CIMultiDict({"X-Session-Id": "s1"}))
    for fields in (None, {}, {"user": "u1"}):
        request = request_of(fields)
        KeyReader(["x-session-id"], stick_to_api_key=False).read(request, headers, ALL)
        assert request.session == 0x9A275E3F454930D1
    assert keys_of(None).session is None


def test_a_salt_separates_users() -> None:
    one, other = (blocks_of({**LONG, "cache_salt": salt}) for salt in ("a", "b"))
    assert not set(one) & set(other)


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_body_has_the_same_keys_whatever_its_shape(name: str) -> None:
    """H73"""
    body = json.dumps(SHAPES[name]).encode()
    assert keys(read_whole(body)) == keys(read_whole(body)) == keys(read_in_steps(body))


def test_an_image_of_megabytes_weighs_like_any_and_is_told_from_others() -> None:
    """H73"""
    small, *large = (
        read_in_steps(orjson.dumps({"messages": [said("user", [image("data:," + data)])]}))
        for data in ("A" * 1000, "A" * 5_000_000, "A" * 4_999_999 + "B")
    )
    assert {request.characters for request in (small, *large)} == {MEDIA_CHARACTERS + len("\x1euser\n")}
    assert len({request.head for request in (small, *large)}) == 3


def test_words_around_a_large_image_are_read() -> None:
    first, second = ({"type": "text", "text": text * 300} for text in ("before ", "behind "))
    picture = image("data:," + "A" * 3_000_000)
    one = read_in_steps(orjson.dumps({"messages": [said("user", [first, picture, second])]}))
    other = read_in_steps(orjson.dumps({"messages": [said("user", [first, picture, first])]}))
    shared = [a == b for a, b in zip(one.blocks, other.blocks, strict=True)]
    assert sum(shared) >= (2100 + MEDIA_CHARACTERS) // BLOCK_CHARACTERS
    assert not shared[-1]


def test_a_conversation_that_becomes_large_keeps_its_keys() -> None:
    messages = [said("user", "hello")]
    for number in range(60):
        messages += [said("assistant", f"{number} word " * 3000), said("user", 'and \n "now"? é\\')]
    small, large = (orjson.dumps({"messages": messages[:count]}) for count in (41, 121))
    assert len(small) < 2**20 < len(large)
    before, after = read_whole(small), read_in_steps(large)
    assert before.head == after.head
    assert list(after.blocks)[: len(before.blocks)] == list(before.blocks) != []


BODIES = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(MESSAGES, max_size=6),
        "prompt": st.one_of(st.text(), st.lists(st.integers(0, 2**33)), VALUES),
        "input": st.one_of(st.text(), st.lists(MESSAGES, max_size=3), VALUES),
        "tools": st.lists(VALUES, max_size=2),
        "system": VALUES,
        **dict.fromkeys(("user", "session_id", "conversation", "cache_salt"), VALUES),
    },
)


INSERTS = (b"", b'"', b"[", b"]", b"{}", b"null", b"1e999", b"\\ud800", b",", b":", b"\xff")
NEEDS = st.sampled_from([Needs(value) for value in range(8)])


def encoded(fields: Fields) -> bytes:
    return json.dumps(fields).encode()


@examples(500)
@given(BODIES)
def test_large_bodies_have_the_keys_of_small_ones(fields: Fields) -> None:
    body = encoded(fields)
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return  # NaN in one field makes Python's parser read all of a small body, not of a large one
    assert keys(read_in_steps(body)) == keys(read_whole(body))


@examples(500)
@given(BODIES, st.data())
def test_no_mutated_body_makes_the_reader_raise(fields: Fields, data: st.DataObject) -> None:
    body = bytearray(encoded(fields))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"[", b"]", b"{}", b"null", b"1e999", b"\\ud800", b",", b":", b"\xff"]
            )
        )
        if not body:
            return
    for read in (read_whole, read_in_steps):
        try:
            keys(read(bytes(body)))
        except InvalidRequest:
            continue


@pytest.mark.parametrize("depth", [200, 500, 900])
@pytest.mark.parametrize("name", sorted(KEY_FIELDS))
@pytest.mark.parametrize(("before", "behind"), [("[", "]"), ('{"content":', "}"), ('[{"content":', "}]")])
def test_no_depth_makes_the_reader_raise(name: str, depth: int, before: str, behind: str) -> None:
    depth //= len(behind)
    value = before * depth + "1" + behind * depth
    for body in (f'{{"{name}":{value}}}', f'{{"messages":[{{"role":"user","{name}":{value}}}]}}'):
        assert keys(read_whole(body.encode())) == keys(read_in_steps(body.encode()))


@examples(300)
@given(
    st.dictionaries(st.sampled_from(sorted(KEY_FIELDS)), VALUES),
    st.sampled_from([Needs(v) for v in range(8)]),
)
def test_no_json_whatever_makes_the_reader_raise(fields: Fields, needs: Needs) -> None:
    keys_of(fields, needs=needs)
