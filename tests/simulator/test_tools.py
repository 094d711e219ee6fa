import json
from typing import Any

import pytest

from replicarouter.simulator.fields import ApiError, Fields
from replicarouter.simulator.tools import arguments_for, choose_call

USER = [{"role": "user", "content": "What is the weather?"}]
RESULT = [*USER, {"role": "assistant"}, {"role": "tool", "content": "rain"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("weather", city={"enum": ["Paris", "Rome"]}), tool("clock")]
NAMED = {"type": "function", "function": {"name": "clock"}}


@pytest.mark.parametrize(
    ("choice", "messages", "called"),
    [
        ("required", RESULT, "weather"),
        (NAMED, RESULT, "clock"),
        ("auto", USER, "weather"),
        (None, USER, "weather"),
        ("auto", RESULT, None),
        ("none", USER, None),
    ],
)
def test_tool_choice_decides_which_function_is_called(
    choice: object, messages: list[dict[str, Any]], called: str | None
) -> None:
    call = choose_call(Fields({"tools": TOOLS, "tool_choice": choice}), messages)
    assert (call.name if call else None) == called


def test_no_tools_no_call() -> None:
    assert choose_call(Fields({}), USER) is None


def test_pieces_of_the_arguments_join_to_json() -> None:
    call = choose_call(Fields({"tools": TOOLS, "tool_choice": "required"}), USER)
    assert call is not None
    assert len(call.pieces) > 1
    assert json.loads("".join(call.pieces)) == {"city": "Paris"}


def test_every_property_gets_a_value_of_its_type() -> None:
    kinds = ("string", "integer", "number", "boolean", "array", "object", "null")
    schema = {"properties": {kind: {"type": kind} for kind in kinds}}
    values = json.loads(arguments_for(schema))
    assert {kind: type(value) for kind, value in values.items()} == {
        "string": str,
        "integer": int,
        "number": float,
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }


@pytest.mark.parametrize("schema", [None, "x", {}, {"properties": [1]}])
def test_schema_without_properties_gives_no_arguments(schema: object) -> None:
    assert arguments_for(schema) == "{}"


@pytest.mark.parametrize(
    "body",
    [
        {"tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": "sometimes"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}},
        {"tools": [{"type": "function"}]},
        {"tools": ["weather"]},
    ],
)
def test_tools_that_make_no_sense_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        choose_call(Fields(body), USER)
    assert refused.value.status == 400
