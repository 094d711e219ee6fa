"""Tool calls of a simulated answer: whether one is made, of which function, with which arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from replicarouter.simulator.fields import Fields, invalid
from replicarouter.simulator.tokens import pieces

_VALUES: dict[str, object] = {
    "string": "harbour",
    "integer": 7,
    "number": 7.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the function `name`; its JSON arguments in pieces, each of one token."""

    name: str
    pieces: tuple[str, ...]


def choose_call(fields: Fields, messages: Sequence[Mapping[str, Any]]) -> ToolCall | None:
    """The call an answer makes, if any.

    `tool_choice` "none" makes none, "required" calls the first tool, a named one that tool; "auto",
    the default, calls the first tool unless the conversation ends with a tool's result.
    """
    functions = _callable(fields)
    choice = fields.values.get("tool_choice")
    answered = bool(messages) and messages[-1].get("role") == "tool"
    if not functions or choice == "none" or (answered and choice in (None, "auto")):
        return None
    return ToolCall(functions[0]["name"], pieces(arguments_for(functions[0].get("parameters"))))


def _callable(fields: Fields) -> list[dict[str, Any]]:
    """The functions that `tool_choice` admits."""
    functions = [_function(tool) for tool in fields.objects("tools") or ()]
    choice = fields.values.get("tool_choice")
    if isinstance(choice, dict):
        named = Fields(choice, "body.tool_choice").object("function")
        name = named.text("name") if named else None
        functions = [function for function in functions if function["name"] == name]
    elif choice not in (None, "auto", "none", "required"):
        raise invalid("body.tool_choice", "must be none, auto, required or a function")
    if choice not in (None, "auto", "none") and not functions:
        raise invalid("body.tool_choice", "none of the tools is that")
    return functions


def arguments_for(schema: object) -> str:
    """JSON arguments with a value for every property of a JSON schema's object."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return "{}"
    return orjson.dumps({name: _value(wanted) for name, wanted in properties.items()}).decode()


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid("body.tools", "each needs a function with a name")
    return function


def _value(schema: object) -> object:
    if not isinstance(schema, dict):
        return None
    allowed, kind = schema.get("enum"), schema.get("type")
    if isinstance(allowed, list) and allowed:
        return allowed[0]
    return _VALUES.get(kind if isinstance(kind, str) else "string")
