import json
from typing import Any

import pytest

from replicarouter.simulator.fields import ApiError, Fields, parse_object


@pytest.mark.parametrize(
    ("content_type", "body", "param"),
    [
        ("text/plain", b"{}", None),
        ("", b"{}", None),
        ("application/json", b"", "body"),
        ("application/json", b'{"model": ', "body.10"),
        ("application/json", b"[1]", "body"),
        ("application/json", b"\xff", "body.0"),
    ],
)
def test_body_that_is_no_json_object_is_refused(content_type: str, body: bytes, param: str | None) -> None:
    with pytest.raises(ApiError) as refused:
        parse_object(content_type, body)
    error = json.loads(refused.value.body())["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("Bad Request", param, 400)


def test_charset_beside_the_content_type_is_fine() -> None:
    assert parse_object("Application/JSON; charset=utf-8", b'{"a":1}').values == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "many"),
        ("integer", 1.5),
        ("integer", True),
        ("integer", [1]),
        ("number", "1.5"),
        ("number", False),
        ("flag", 1),
        ("flag", "yes"),
        ("text", 1),
        ("object", [1]),
        ("objects", {"a": 1}),
        ("objects", ["a"]),
        ("objects", "hi"),
    ],
)
def test_value_of_the_wrong_type_is_refused_by_name(kind: str, value: Any) -> None:
    reader = getattr(Fields({"field": value}), kind)
    with pytest.raises(ApiError, match=r"body\.field: must be ") as refused:
        reader("field")
    assert refused.value.param == "body.field"


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("integer", 3, 3),
        ("integer", "3", 3),
        ("integer", 3.0, 3),
        ("number", 3, 3),
        ("flag", True, True),
        ("text", "a", "a"),
        ("objects", [{"a": 1}], [{"a": 1}]),
    ],
)
def test_fitting_values_are_read(kind: str, value: Any, read: Any) -> None:
    assert getattr(Fields({"field": value}), kind)("field") == read


@pytest.mark.parametrize("kind", ["integer", "number", "text", "object", "objects"])
@pytest.mark.parametrize("values", [{}, {"field": None}])
def test_absent_and_null_are_the_same(kind: str, values: dict[str, Any]) -> None:
    assert getattr(Fields(values), kind)("field") is None
    assert Fields(values).flag("field") is False


def test_inner_fields_are_named_with_their_place() -> None:
    inner = Fields({"stream_options": {"include_usage": 1}}).object("stream_options")
    assert inner is not None
    with pytest.raises(ApiError) as refused:
        inner.flag("include_usage")
    assert refused.value.param == "body.stream_options.include_usage"
