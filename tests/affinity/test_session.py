"""Which of the things that a caller may say is the session key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from replicarouter.affinity.session import BODY_FIELDS, SessionReader
from replicarouter.protocol.json_values import Opaque
from replicarouter.settings import PolicyOptions
from tests.affinity.bodies import VALUES
from tests.properties import examples

HEADERS = PolicyOptions().session_headers


def key(
    *headers: tuple[str, str], fields: dict[str, Any] | None = None, stick_to_api_key: bool = False
) -> int | None:
    reader = SessionReader(HEADERS, stick_to_api_key=stick_to_api_key)
    return reader.read(fields, CIMultiDictProxy(CIMultiDict(headers)))


@pytest.mark.parametrize("name", HEADERS)
def test_every_header_of_the_settings_is_read_in_any_case(name: str) -> None:
    assert key((name.upper(), "s1")) == key((name.lower(), "s1")) == key((name, " s1 ")) is not None
    assert key((name, "s1")) != key((name, "s2"))


def test_headers_come_in_their_order_and_before_the_body() -> None:
    sources = [(name, f"by {name}") for name in HEADERS]
    fields = dict.fromkeys(BODY_FIELDS, "by the body")
    for index, (name, value) in enumerate(sources):
        assert key(*reversed(sources[index:]), fields=fields) == key((name, value))


def test_fields_of_the_body_come_in_their_order() -> None:
    fields: dict[str, Any] = {name: f"by {name}" for name in BODY_FIELDS}
    for name in BODY_FIELDS:
        assert key(fields=dict(reversed(fields.items()))) == key(fields={name: fields.pop(name)}) is not None


@pytest.mark.parametrize("blank", ["", " ", "\t  "])
def test_a_blank_header_counts_as_missing(blank: str) -> None:
    """H71"""
    assert key(("X-Session-Id", blank)) is None
    assert key(("X-Session-Id", blank), ("X-Correlation-Id", "c1")) == key(("X-Correlation-Id", "c1"))
    assert key(("X-Session-Id", blank), fields={"user": "u1"}) == key(fields={"user": "u1"})


def test_of_a_header_sent_twice_the_first_counts_that_is_not_blank() -> None:
    """H71"""
    assert key(("X-Session-Id", "a"), ("x-session-id", "b")) == key(("X-Session-Id", "a"))
    assert key(("X-Session-Id", " "), ("x-session-id", "b")) == key(("X-Session-Id", "b"))


def test_a_conversation_is_named_by_a_text_or_by_its_id() -> None:
    assert key(fields={"conversation": "c1"}) == key(fields={"conversation": {"id": "c1"}}) is not None
    assert key(fields={"conversation": {"id": "c1"}}) != key(fields={"conversation": {"id": "c2"}})


@pytest.mark.parametrize("name", BODY_FIELDS)
@pytest.mark.parametrize("value", [None, "", "  ", True, [], ["a"], {}, {"id": None}, {"id": ["a"]}])
def test_what_is_no_text_counts_as_missing(name: str, value: Any) -> None:
    assert key(fields={name: value}) is None
    assert key(fields={name: value, "user" if name != "user" else "session_id": "u1"}) == key(
        fields={"user": "u1"}
    )


@pytest.mark.parametrize(("number", "same"), [(7, "7"), (-1, "-1"), (1.5, "1.5")])
def test_numbers_are_keys(number: float, same: str) -> None:
    assert key(fields={"user": number}) == key(fields={"user": same})


def test_a_text_too_large_to_be_built_is_a_key() -> None:
    assert key(fields={"user": Opaque(1, 2**21, "a")}) != key(fields={"user": Opaque(2, 2**21, "a")})


def test_the_api_key_is_one_only_if_it_is_to_be() -> None:
    bearer, own = ("Authorization", "Bearer k1"), ("X-API-Key", "k1")
    assert key(bearer) is None
    assert key(bearer, stick_to_api_key=True) == key(own, stick_to_api_key=True) is not None
    assert key(("authorization", "bearer  k1 "), stick_to_api_key=True) == key(own, stick_to_api_key=True)
    assert key(bearer, fields={"user": "u1"}, stick_to_api_key=True) == key(fields={"user": "u1"})
    assert key(bearer, stick_to_api_key=True) != key(("X-Session-Id", "k1"))


@pytest.mark.parametrize("value", ["", "Basic abc", "Bearer", "Bearer  ", "k1"])
def test_credentials_of_another_kind_are_no_key(value: str) -> None:
    assert key(("Authorization", value), ("x-api-key", " "), stick_to_api_key=True) is None


def test_keys_are_the_same_in_every_process() -> None:
    """Routers must agree, and a restart must move nothing: XXH3 of the key, without a secret."""
    assert key(("X-Session-Id", "")) is None
    assert key(("X-Session-Id", "abc")) == 0x78AF5F94892F3950


@examples(300)
@given(st.dictionaries(st.sampled_from(BODY_FIELDS), VALUES), st.text(max_size=6))
def test_no_value_whatever_raises(fields: dict[str, Any], header: str) -> None:
    found = key(("X-Session-Id", header), fields=fields, stick_to_api_key=True)
    assert found is None or 0 <= found < 2**64
