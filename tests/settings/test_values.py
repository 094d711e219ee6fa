"""Each kind of value: what it takes, and that it says what it takes."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from replicarouter.settings import values as kinds
from replicarouter.settings.values import byte_text, is_host, is_loopback

MIB = 2**20


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        (kinds.Port, "0", 0),
        (kinds.Port, 65535, 65535),
        (kinds.Count, "7", 7),
        (kinds.Count, 0, 0),
        (kinds.Seconds, "0.25", 0.25),
        (kinds.Seconds, 0, 0.0),
        (kinds.Interval, 0.01, 0.01),
        (kinds.Share, "1", 1.0),
        (kinds.Weight, 0.001, 0.001),
        (kinds.Switch, "off", False),
        (kinds.Switch, "true", True),
        (kinds.ByteCount, 1, 1),
        (kinds.ByteCount, "4096", 4096),
        (kinds.ByteCount, "256 MiB", 256 * MIB),
        (kinds.ByteCount, "1GiB", 1024 * MIB),
        (kinds.ByteCount, " 2KiB ", 2048),
        (kinds.Host, "localhost", "localhost"),
        (kinds.Host, "::1", "::1"),
        (kinds.Host, "fe80::1%eth0", "fe80::1%eth0"),
        (kinds.Host, "vllm_0.default.svc", "vllm_0.default.svc"),
        (kinds.HeaderName, "X-Session-Id", "X-Session-Id"),
        (kinds.RelayedPath, "/v1/x-y", "/v1/x-y"),
    ],
)
def test_value_is_taken(kind: Any, given: object, taken: object) -> None:
    assert TypeAdapter(kind).validate_python(given) == taken


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (kinds.Port, 65536),
        (kinds.Port, -1),
        (kinds.Port, True),
        (kinds.Port, 80.5),
        (kinds.Port, ""),
        (kinds.Port, None),
        (kinds.Count, -1),
        (kinds.Count, False),
        (kinds.PositiveCount, 0),
        (kinds.Seconds, -0.1),
        (kinds.Seconds, float("nan")),
        (kinds.Seconds, "inf"),
        (kinds.Seconds, True),
        (kinds.Interval, 0),
        (kinds.Rate, float("inf")),
        (kinds.Share, 1.01),
        (kinds.Share, float("nan")),
        (kinds.Weight, 0),
        (kinds.Weight, float("inf")),
        (kinds.Switch, "perhaps"),
        (kinds.Text, ""),
        (kinds.Text, 5),
        (kinds.Texts, "one"),
        (kinds.ByteCount, 0),
        (kinds.ByteCount, "1.5 MiB"),
        (kinds.ByteCount, "5 MB"),
        (kinds.ByteCount, True),
        (kinds.Host, ""),
        (kinds.Host, "a b"),
        (kinds.Host, "127.0.0.1:80"),
        (kinds.Host, "[::1]"),
        (kinds.Host, "-a"),
        (kinds.Secret, ""),
        (kinds.Secret, "a b"),
        (kinds.Secret, "a\r\nX-Admin: 1"),
        (kinds.Secret, "schlüssel"),
        (kinds.Secret, 5),
        (kinds.Origin, "chat.example"),
        (kinds.Origin, "https://chat.example/page"),
        (kinds.Origin, "https://user@chat.example"),
        (kinds.Origin, "https://*.example"),
        (kinds.Origin, "https://a\n"),
        (kinds.HeaderName, "X: y"),
        (kinds.HeaderName, ""),
        (kinds.HeaderName, "X-Y\n"),
        (kinds.RelayedPath, "v1"),
        (kinds.RelayedPath, "/v1?x"),
        (kinds.RelayedPath, "/v1#x"),
        (kinds.RelayedPath, "/v1 x"),
        (kinds.RelayedPath, "/v1\n"),
        (kinds.Network, "10.0.0.1/8"),
        (kinds.FileName, 5),
    ],
)
def test_refused_value_is_answered_with_what_is_accepted(kind: Any, given: object) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(given)
    (problem,) = caught.value.errors()
    assert problem["type"] == "refused"
    assert problem["ctx"]["accepted"]


def test_bad_item_of_a_list_is_told_at_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kinds.Texts).validate_python(["a", "", "b", 3])
    assert [problem["loc"] for problem in caught.value.errors()] == [(1,), (3,)]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback_is_told_from_other_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("text", ["", "a/b", "a:1", "a@b", "a\n", "ä", ".", "a..b b"])
def test_what_is_no_host_is_told(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1"), (1000, "1000"), (1024, "1 KiB"), (64 * 1024, "64 KiB"), (256 * MIB, "256 MiB")],
)
def test_written_bytes_are_read_as_the_same_number(count: int, text: str) -> None:
    assert byte_text(count) == text
    assert TypeAdapter(kinds.ByteCount).validate_python(text) == count
