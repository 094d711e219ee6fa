"""Chat requests, and what becomes of them."""

import json
import time

import pytest

from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.door import Door, open_session
from replicarouter.acceptance.errors import Refused
from replicarouter.acceptance.prompts import user
from tests.acceptance.scripted import MODEL, Scripted
from tests.fakes.replica import Connection, FakeReplica, Received, sized

QUESTION = Question(model=MODEL, messages=user("hi"), max_tokens=5, more={"ignore_eos": True})


def test_a_body_is_deterministic_and_a_stream_wants_its_usage() -> None:
    whole, stream = json.loads(QUESTION.body(stream=False)), json.loads(QUESTION.body(stream=True))
    assert whole["temperature"] == 0
    assert whole["ignore_eos"] is True
    assert "stream" not in whole
    assert "chat_template_kwargs" not in whole
    assert stream == {**whole, "stream": True, "stream_options": {"include_usage": True}}


async def test_what_was_asked_is_metered() -> None:
    async with Scripted() as one, open_session() as session:
        door = Door("one", one.url, session, time.monotonic)
        await ask(door, QUESTION)
        await ask(door, QUESTION, stream=True, headers={"X-Session-Id": "s"})
        assert (door.meter.requests, door.meter.prompt_tokens, door.meter.completion_tokens) == (2, 18, 4)
    assert one.requests[1].head.get("x-session-id") == "s"


async def test_an_engine_that_refuses_the_switch_of_thinking_is_asked_without() -> None:
    async def script(received: Received, connection: Connection) -> None:
        if "chat_template_kwargs" in json.loads(received.body):
            await connection.send(sized(b'{"detail":"unknown field"}', status="400 Bad Request"))
        else:
            await connection.send(sized(b'{"choices":[{"message":{"content":"yes"}}]}'))

    switched = Question(model=MODEL, messages=user("hi"), max_tokens=5, thinking=False)
    async with FakeReplica(script) as replica, open_session() as session:
        door = Door("one", str(replica.settings["url"]), session, time.monotonic)
        assert (await ask(door, switched)).text == "yes"


async def test_other_refusals_are_raised() -> None:
    async with Scripted() as one, open_session() as session:
        door = Door("one", one.url, session, time.monotonic)
        with pytest.raises(Refused, match="no such model"):
            await ask(door, Question(model="m9", messages=user("hi"), max_tokens=5, thinking=False))
