"""An alias changes the bytes of one value, and none beside them."""

import json

import pytest

from replicarouter.errors import InvalidRequest
from replicarouter.protocol.alias import form_name, json_name, patched, rewrite_model, rewrite_query


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"a"}', b'{"model":"real"}'),
        (b'{ "model" :\t"a" , "n":1}', b'{ "model" :\t"real" , "n":1}'),
        (b'{"n":1.10,"model":"a","x":1e5}', b'{"n":1.10,"model":"real","x":1e5}'),
        (b'\xef\xbb\xbf{\r\n"model":\r\n"a"}', b'\xef\xbb\xbf{\r\n"model":\r\n"real"}'),
        (b'{"model":"\\u0061","e":"\\u00e9"}', b'{"model":"real","e":"\\u00e9"}'),
        (b'{"\\u006dodel":"a"}', b'{"\\u006dodel":"real"}'),
        (b'{"mod\\u0065l":"x","a":{"model":"a"}}', b'{"mod\\u0065l":"real","a":{"model":"a"}}'),
        (b'{"model":"x","model":"a"}', b'{"model":"real","model":"real"}'),
        (b'{"model":null,"model":"a"}', b'{"model":null,"model":"real"}'),
        (b'{"model":"\\"a\\\\"}', b'{"model":"real"}'),
        (b'{"model":"a","n":NaN}', b'{"model":"real","n":NaN}'),
    ],
)
def test_value_of_the_field_is_replaced_and_nothing_else(before: bytes, after: bytes) -> None:
    assert rewrite_model(before, "real") == after


@pytest.mark.parametrize(
    "other",
    [
        b'"a":{"model":"a"}',
        b'"a":[{"model":"a"},["model"]]',
        b'"model2":"a"',
        b'"model ":"a"',
        b'"Model":"a"',
        b'"user":"model"',
        b'"user":"\\"model\\":\\"a\\""',
        b'"user":"}]}{\\\\\\"","b":"\\\\"',
        b'"model\\\\":"a"',
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_only_looks_like_the_field_stays(other: bytes, first: bool) -> None:
    json.loads(b"{%b}" % other)
    parts = (b'"model":"%b"', other) if first else (other, b'"model":"%b"')
    body = b"{%b,%b}" % parts
    assert rewrite_model(body.replace(b"%b", b"alias"), "real") == body.replace(b"%b", b"real")


def test_name_is_written_as_json() -> None:
    assert rewrite_model(b'{"model":"a"}', 'q"\\é') == '{"model":"q\\"\\\\é"}'.encode()
    assert json.loads(json_name('q"\\é')) == 'q"\\é'
    assert form_name('q"\\é') == 'q"\\é'.encode()


@pytest.mark.parametrize("body", ['{"model":"a"}'.encode("utf-16"), b'{"a":{"model":"a"}}', b"[]"])
def test_a_field_that_cannot_be_found_is_an_error(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rewrite_model(body, "real")
    assert caught.value.param == "model"


@pytest.mark.parametrize("text", [b"x" * 30_000_000, b'\\"\\n' * 5_000_000], ids=["plain", "escapes"])
@pytest.mark.parametrize("first", [True, False])
def test_huge_strings_are_passed_over(text: bytes, first: bool) -> None:
    fields = [b'"model":"a"', b'"messages":[{"content":"%b"}]' % text]
    body = b"{%b}" % b",".join(fields if first else fields[::-1])
    assert rewrite_model(body, "real") == body.replace(b'"a"', b'"real"')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/v1/realtime?model=a", "/v1/realtime?model=real%2Fone%20b"),
        ("/v1/realtime?x=%20&model=a%2f1&y", "/v1/realtime?x=%20&model=real%2Fone%20b&y"),
        ("/v1/realtime?mod%65l=a&models=a&x=model", "/v1/realtime?model=real%2Fone%20b&models=a&x=model"),
        ("/v1/realtime", "/v1/realtime"),
        ("/v1/realtime?", "/v1/realtime?"),
    ],
)
def test_parameter_of_a_query_is_replaced_and_the_rest_stays(before: str, after: str) -> None:
    assert rewrite_query(before, "real/one b") == after


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("span", [(0, 3), (2, 5), (7, 10), (4, 5), (0, 10)])
def test_a_value_is_replaced_in_pieces_of_any_size(size: int, span: tuple[int, int]) -> None:
    body = b"0123456789"
    pieces = [patched(body[at : at + size], at, span, b"NEW") for at in range(0, len(body), size)]
    assert b"".join(pieces) == body[: span[0]] + b"NEW" + body[span[1] :]
