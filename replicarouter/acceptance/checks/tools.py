"""Whether tools are accepted and, where that was asked for, calls come back that fit their schema."""

from collections.abc import Sequence
from typing import Any

import orjson

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.errors import Refused
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.prompts import Message, user
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import addresses, by_value, names, several

TOKENS = 192
NAME = "get_weather"

# One argument of few words: engines enforce a schema only with `strict`, if at all, and small models err.
_CITIES = ("Paris", "Oslo", "Quito")
_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "The weather in a city now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(_CITIES)}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_REFUSALS = frozenset((400, 422, 501))
"""The statuses of engines that take no tools."""

_CURE = "vLLM: --enable-auto-tool-choice --tool-call-parser NAME; SGLang: --tool-call-parser NAME"
_WAYS: tuple[tuple[str, object, bool], ...] = (
    ("required", "required", False),
    ("named", {"type": "function", "function": {"name": NAME}}, True),
)


async def run(scene: Scene, model: str) -> Finding:
    """Send a tool everywhere; with `--tools` want calls of it."""
    messages = user(f"Note {scene.prompts.mark()}. What is the weather in Paris?")
    if not scene.wishes.tools:
        return await _accepted(scene.doors(model), model, messages)

    async def look(door: Door) -> str:
        problems = []
        for told, choice, stream in _WAYS:
            question = Question(
                model=model,
                messages=messages,
                max_tokens=TOKENS,
                thinking=False,
                more={"tools": [_TOOL], "tool_choice": choice},
            )
            answer = await ask(door, question, stream=stream)
            if problem := wrong(answer):
                how = "streamed" if stream else "whole"
                problems.append(f"tool_choice {told}, {how}: {problem}")
        return "; ".join(problems)

    doors = scene.doors(model)
    asked = await at_each(doors, look)
    if asked.problems:
        return failed(several(asked.problems), _CURE)
    if wrongs := {door.name: problem for door, problem in asked.good if problem}:
        return failed(by_value(wrongs), _CURE)
    return passed(f"calls that fit their schema from {addresses(doors)}, streamed and whole")


def wrong(answer: Answer) -> str:
    """What is wrong with the call in an answer; empty when it is as asked for."""
    if answer.finish == "length":
        return f"no whole call within {TOKENS} tokens"
    if not answer.calls:
        return "no call comes back" + (" (the text is a call's: no parser)" if NAME in answer.text else "")
    call = answer.calls[0]
    if call.name != NAME:
        return f"it calls {call.name!r}, not {NAME}"
    try:
        arguments = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return "its arguments are no JSON"
    if not _fits(arguments):
        return "its arguments do not fit the schema"
    if answer.finish not in {"tool_calls", "stop"}:
        return f"it finishes with {answer.finish}"
    return ""


def _fits(arguments: Any) -> bool:
    return isinstance(arguments, dict) and arguments.keys() == {"city"} and arguments["city"] in _CITIES


async def _accepted(doors: Sequence[Door], model: str, messages: list[Message]) -> Finding:
    """Whether tools may be sent, which all replicas must agree on."""
    question = Question(model=model, messages=messages, max_tokens=1, thinking=False, more={"tools": [_TOOL]})

    async def refusal(door: Door) -> str:
        try:
            await ask(door, question)
        except Refused as refused:
            if refused.status not in _REFUSALS:
                raise
            return f"{refused.status}: {refused.message}"
        return ""

    asked = await at_each(doors, refusal)
    if asked.problems:
        return failed(several(asked.problems))
    refusals = {door.name: reason for door, reason in asked.good if reason}
    if not refusals:
        return passed("requests with tools are accepted; calls were not asked for (--tools)")
    # Which replica answers through the router is chance, so it is named only where all others accept.
    if len(refusals) < len(doors):
        at = [name for name in refusals if name != doors[0].name] or [*refusals]
        told = f"tools are refused at {names(at)} ({refusals[at[0]]}) and accepted at the others"
        return failed(told, f"start all replicas with the same flags for tools ({_CURE})")
    return skipped(
        f"tools are refused ({next(iter(refusals.values()))}); calls were not asked for",
        f"if clients will send tools, {_CURE}; then check with --tools",
    )


CHECK = Check(
    name="tools",
    asks="are tools accepted and, with --tools, do calls come back that fit their schema",
    costs="1 request of 1 token at each of R + 1 addresses; with --tools, 2 of up to 192",
    run=run,
)
