"""What a request asks for, out of any body that engines take."""

import json
from typing import Any

import pytest

from replicarouter.errors import InvalidRequest, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body, Endpoints
from replicarouter.protocol.request import KEY_FIELDS, InferenceRequest, understand, understand_large

TABLE = Endpoints()


def read(
    body: bytes, kind: Body = Body.JSON, *, encoded: bool = False, must_read: bool = False
) -> InferenceRequest:
    endpoint = TABLE.find("/v1/chat/completions")
    assert endpoint is not None
    return understand(endpoint, kind, body, encoded=encoded, must_read=must_read)


def test_model_and_stream_are_read() -> None:
    request = read(b'{"model":"m1","messages":[],"stream":true}')
    assert (request.model, request.stream) == ("m1", True)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"model":null}', b'{"stream":null}', b'{"messages":[]}', b" {} \n"]
)
def test_a_request_may_name_no_model(body: bytes) -> None:
    request = read(body)
    assert (request.model, request.stream) == (None, False)


@pytest.mark.parametrize("value", ["1", '"true"', "[]", "0", "false"])
def test_only_true_asks_for_a_stream(value: str) -> None:
    assert not read(f'{{"stream":{value}}}'.encode()).stream


ODD = {
    "an integer beyond 64 bits": b'{"model":"m1","seed":123456789012345678901234567890}',
    "a float beyond its range": b'{"model":"m1","temperature":1e999}',
    "many digits": b'{"model":"m1","temperature":0.1000000000000000055511151231257827}',
    "NaN": b'{"model":"m1","temperature":NaN}',
    "infinity": b'{"model":"m1","bias":[Infinity,-Infinity]}',
    "a lone surrogate": b'{"model":"m1","messages":[{"content":"\\ud83d"}]}',
    "a NUL in a string": b'{"model":"m1","messages":"\\u0000"}',
    "a byte order mark": b'\xef\xbb\xbf{"model":"m1"}',
    "another encoding": json.dumps({"model": "m1"}).encode("utf-16"),
    "nesting of 500": b'{"model":"m1","x":' + b"[" * 500 + b"]" * 500 + b"}",
    "blanks all over": b'\r\n\t {"model" : "m1"\n}\n',
    "escapes in the key": b'{"\\u006dodel":"m1"}',
    "a key that is empty": b'{"":1,"model":"m1"}',
}


@pytest.mark.parametrize("name", ODD)
def test_odd_bodies_that_engines_take_are_understood(name: str) -> None:
    assert read(ODD[name]).model == "m1"


def test_of_two_models_the_last_counts_as_in_engines() -> None:
    body = b'{"model":"m0","stream":true,"model":"m1","stream":false}'
    request = read(body)
    assert (request.model, request.stream) == (json.loads(body)["model"], False)


def test_a_model_name_of_a_lone_surrogate_is_a_name() -> None:
    assert read(b'{"model":"\\ud800"}').model == "\ud800"


BROKEN = {
    "nothing": b"",
    "no JSON": b"hello",
    "half of it": b'{"model":"m1"',
    "two documents": b'{"model":"m1"}{"model":"m1"}',
    "single quotes": b"{'model':'m1'}",
    "a comma too many": b'{"model":"m1",}',
    "a comment": b'{"model":"m1"/**/}',
    "bytes that are no text": b'{"model":"\xff\xfe"}',
    "a raw line feed in a string": b'{"model":"m\n1"}',
    "nesting of 100,000": b"[" * 100_000 + b"]" * 100_000,
    "nesting without an end": b'{"a":' * 100_000,
    "an integer of 5,000 digits, then an error": b'{"seed":' + b"9" * 5000 + b"NaN}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_body_that_is_not_json_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        read(BROKEN[name])


@pytest.mark.parametrize("body", [b"[]", b'"m1"', b"1", b"null", b"true", b'[{"model":"m1"}]'])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(body)
    assert "object" in refused.value.message


@pytest.mark.parametrize("value", ["1", "true", "[]", '["m1"]', '{"name":"m1"}', "1.5"])
def test_a_model_that_is_no_text_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(f'{{"model":{value}}}'.encode())
    assert refused.value.param == "model"


def read_in_steps(body: bytes) -> InferenceRequest:
    endpoint = TABLE.find("/v1/chat/completions")
    assert endpoint is not None
    steps = understand_large(endpoint, body)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            read: InferenceRequest = done.value
            return read


TELLING = [
    *(body for body in ODD.values() if b"\x00" not in body),
    b'{"model":"m0","stream":true,"model":"m1","stream":false}',
    b'{"model":null,"stream":1}',
    b'{"model":"\\ud800","stream":true}',
    b'{"model":"m1","previous_response_id":"resp_1","stream":true}',
    b'{"model":"m1","previous_response_id":null}',
    b"{}",
]


@pytest.mark.parametrize("body", TELLING)
def test_a_large_body_says_the_same_as_a_small_one(body: bytes) -> None:
    small, large = read(body), read_in_steps(body)
    assert (large.model, large.stream, large.response_id) == (small.model, small.stream, small.response_id)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"hello", b"[]", b'{"model":"m1"', b'{"model":"m1"}{}', b'{"model":}'),
        '{"model":"m1"}'.encode("utf-16"),
    ],
)
def test_a_large_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_in_steps(body)


@pytest.mark.parametrize("value", [b"1", b"true", b"[]", b'["m1"]', b'{"name":"m1"}', b"1.5"])
def test_a_large_body_whose_model_is_no_text_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_in_steps(b'{"model":%b}' % value)
    assert refused.value.param == "model"


def test_an_added_path_is_only_read_where_it_must_be() -> None:
    added = Endpoints(["/added"]).find("/added")
    assert added is not None
    body = b'{"model":"m1"}'
    free = understand(added, Body.OPTIONAL, b"no JSON", encoded=False, must_read=False)
    bound = understand(added, Body.OPTIONAL, body, encoded=False, must_read=True)
    assert (free.model, bound.model) == (None, "m1")


def test_an_optional_body_may_be_missing() -> None:
    assert read(b"", Body.OPTIONAL).model is None


def test_an_optional_body_is_read_if_it_is_there() -> None:
    assert read(b'{"model":"m1"}', Body.OPTIONAL).model == "m1"


def test_a_compressed_body_is_passed_over_when_it_need_not_be_read() -> None:
    assert read(b"\x1f\x8b\x08", encoded=True).model is None


def test_a_compressed_body_is_refused_when_its_model_decides() -> None:
    with pytest.raises(UnsupportedEncoding):
        read(b"\x1f\x8b\x08", encoded=True, must_read=True)


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f"--b\r\nContent-Disposition: form-data; {name}\r\n{more}\r\n".encode() + value + b"\r\n"


FILE = part('name="file"; filename="a.wav"', b"RIFF\x00\r\n\r\nname=\r\n", "Content-Type: audio/wav\r\n")
END = b"--b--\r\n"

FORMS = {
    "the model first": part('name="model"', b"m1") + FILE + END,
    "the file first": FILE + part('name="model"', b"m1") + END,
    "a name without quotes": part("name=model", b"m1") + END,
    "a part with its own type": part('name="model"', b"m1", "Content-Type: text/plain\r\n") + END,
    "another order of parameters": part('filename=""; name="model"', b"m1") + END,
    "a similar field first": part('name="response_format"', b"json") + part('name="model"', b"m1") + END,
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_names_its_model(name: str) -> None:
    assert read(FORMS[name], Body.FORM, must_read=True).model == "m1"


def test_a_form_is_not_read_where_its_model_decides_nothing() -> None:
    """Or the answer would depend on how it was cut into packets: a form that arrives passes through."""
    assert read(FORMS["a similar field first"], Body.FORM).model is None


MISLEADING = {
    "a file called model": part('name="file"; filename="model.wav"', b"RIFF", "Content-Type: audio/wav\r\n"),
    "a file called model, first in its line": part('filename="model.wav"; name="file"', b"RIFF"),
    "a field whose name goes on": part('name="model_size"', b"large"),
    "a field whose name ends so": part('name="base_model"', b"other"),
}


@pytest.mark.parametrize("name", [name for name in MISLEADING if "ends" not in name])
def test_only_the_field_called_model_is_the_model(name: str) -> None:
    form = MISLEADING[name] + part('name="model"', b"m1") + END
    assert read(form, Body.FORM, must_read=True).model == "m1"


def test_a_field_whose_name_ends_in_model_is_not_the_model() -> None:
    assert read(MISLEADING["a field whose name ends so"] + END, Body.FORM, must_read=True).model is None


@pytest.mark.parametrize("body", [b"", END, FILE + END, part('name="model"', b"") + END, b"\x00" * 1000])
def test_a_form_may_name_no_model(body: bytes) -> None:
    assert read(body, Body.FORM, must_read=True).model is None


@pytest.mark.timeout(3)
def test_a_hostile_form_is_read_as_fast_as_any_other() -> None:
    assert read(b"name=model\r\n" * 20_000, Body.FORM, must_read=True).model is None


def fields_in_steps(body: bytes, *, wants_keys: bool) -> Any:
    endpoint = TABLE.find("/v1/chat/completions")
    assert endpoint is not None
    steps = understand_large(endpoint, body, wants_keys=wants_keys)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value.fields


KEYED = b'{"x":[1],"messages":[{"role":"user","content":"hi"}],"user":"u1","model":"m1","prompt":null}'


def test_the_fields_of_a_body_are_kept_for_keys() -> None:
    assert read(KEYED).fields == json.loads(KEYED)
    assert read(b"", Body.OPTIONAL).fields is None
    assert read(b"\x1f\x8b\x08", encoded=True).fields is None
    assert read(FORMS["the model first"], Body.FORM, must_read=True).fields is None


def test_of_a_large_body_only_the_fields_that_keys_need_are_built() -> None:
    wanted = {name: value for name, value in json.loads(KEYED).items() if name in KEY_FIELDS}
    assert fields_in_steps(KEYED, wants_keys=True) == wanted
    assert set(wanted) == {"messages", "user", "prompt"}
    assert fields_in_steps(KEYED, wants_keys=False) is None


@pytest.mark.parametrize("broken", [b'{"messages":[1 2],"model":"m1"}', b'{"user":nul,"model":"m1"}'])
def test_keys_refuse_no_large_body_that_passes_without_them(broken: bytes) -> None:
    assert fields_in_steps(broken, wants_keys=True) is not None
    assert read_in_steps(broken).model == "m1"
