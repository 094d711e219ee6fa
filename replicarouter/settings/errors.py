"""Bad settings in words: which key, which value, where it came from and what is accepted."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
"""A place in the tree of settings: keys, and positions in lists."""

_LONGEST_VALUE = 100
_FOLLOWS_FROM_ANOTHER = "default_factory_not_called"


def dotted(location: Location) -> str:
    """Write a place as people do: `replicas[0].url`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """Write a value into a message, but not what lists and mappings hold: it may be secret."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def unknown(name: str, source: str, known: Iterable[str]) -> str:
    """Say that a name is none of the known ones, and which one may have been meant."""
    choices = list(known)
    close = difflib.get_close_matches(name.rpartition(".")[2], choices, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(choices)}"
    return f"{name} ({source}): unknown; {hint}"


def explain(
    problems: Sequence[ErrorDetails],
    *,
    source: Callable[[Location], str],
    known: Callable[[Location], Iterable[str]],
) -> str:
    """Turn what validation found into a message, one line for each problem.

    `source` says where the value at a place came from, `known` which keys a section has.
    """
    return "\n".join(
        _line(problem, source=source, known=known)
        for problem in problems
        if problem["type"] != _FOLLOWS_FROM_ANOTHER
    )


def _line(
    problem: ErrorDetails,
    *,
    source: Callable[[Location], str],
    known: Callable[[Location], Iterable[str]],
) -> str:
    context = problem.get("ctx", {})
    location = problem["loc"] + context.get("at", ())
    key, origin = dotted(location), source(location)
    match problem["type"]:
        case "extra_forbidden":
            return unknown(key, origin, known(location[:-1]))
        case "conflict":
            return f"{key}: {shown(context['value'])} ({origin}) is refused: {context['reason']}"
        case "missing":
            return f"{key} ({origin}): missing"
        case "model_type":
            return f"{key} ({origin}): give a mapping with the keys {', '.join(known(location))}"
        case "refused":
            value = context["shown"] or shown(problem["input"])
            return f"{key}: {value} ({origin}) is refused: give {context['accepted']}"
        case _:
            return f"{key} ({origin}) is refused: {problem['msg']}"
