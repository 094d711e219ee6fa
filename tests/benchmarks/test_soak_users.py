"""What a soak's user makes of an answer: each way to go wrong is told from a right one."""

import asyncio
import json

import pytest

from benchmarks.soak_users import Habits, Line, Question, Users, question
from replicarouter.simulator import EngineOptions, SimulatedEngine
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import SSE_HEAD, FakeReplica, reply, sized, stall
from tests.fakes.wire import eventually

STREAMED = question("n1", 3, stream=True)
WHOLE = question("n1", 3, stream=False)
EVENT_END = b"\n\n"


def event(text: str, name: str = "chatcmpl-n1") -> bytes:
    document = {"id": name, "choices": [{"delta": {"content": text}}]}
    return b"data: " + json.dumps(document).encode() + EVENT_END


def stream(*events: bytes) -> bytes:
    return SSE_HEAD + b"".join(chunk(one) for one in events)


TEXT = STREAMED.text
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "m", "code": "replica_disconnected"}}\n\n'
IN_BAND = b'data: {"error": {"message": "m", "code": 500}}\n\n'


async def judged(raw: bytes, asked: Question = STREAMED, *, cut: bool = False) -> str:
    async with FakeReplica(reply(raw, then="fin" if cut else "keep")) as replica:
        line = Line(replica.port)
        outcome, _ = await line.answer(asked, 5, slow=False)
        await line.leave(rudely=True)
    return outcome


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (stream(event(TEXT), DONE) + LAST_CHUNK, "ok"),
        (stream(b": keep-alive\n\n", event(TEXT[:4]), event(TEXT[4:]), DONE) + LAST_CHUNK, "ok"),
        (stream(event(TEXT)[:9], event(TEXT)[9:], DONE) + LAST_CHUNK, "ok"),
        (stream(event(TEXT, "chatcmpl-n1-r2"), DONE) + LAST_CHUNK, "ok"),
        (stream(event(TEXT)) + LAST_CHUNK, "lost"),
        (stream(event(TEXT[:4]), DONE) + LAST_CHUNK, "lost"),
        (stream(DONE) + LAST_CHUNK, "lost"),
        (stream(event(TEXT[4:]), DONE) + LAST_CHUNK, "mixed"),
        (stream(event(TEXT + " more"), DONE) + LAST_CHUNK, "mixed"),
        (stream(event(TEXT, "chatcmpl-n2"), DONE) + LAST_CHUNK, "mixed"),
        (stream(event(TEXT), IN_BAND, DONE) + LAST_CHUNK, "upstream_error"),
    ],
)
async def test_stream_is_right_to_the_last_token_or_not(raw: bytes, outcome: str) -> None:
    assert await judged(raw) == outcome


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (stream(event(TEXT[:4]), ERROR), "replica_disconnected"),
        (stream(event(TEXT[:4])), "lost"),
        (stream(event(TEXT), DONE), "lost"),
        (SSE_HEAD, "lost"),
        (b"", "lost"),
        (SSE_HEAD[:20], "cut"),
        (stream(event(TEXT)[:9]), "cut"),
        (stream(event(TEXT))[:-20], "cut"),
    ],
)
async def test_end_is_explained_or_cut_or_nothing(raw: bytes, outcome: str) -> None:
    assert await judged(raw, cut=True) == outcome


def document(text: str, name: str = "chatcmpl-n1") -> bytes:
    choice = {"message": {"content": text}}
    return json.dumps({"id": name, "choices": [choice], "usage": {"completion_tokens": 3}}).encode()


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (sized(document(TEXT)), "ok"),
        (sized(document(TEXT[1:])), "mixed"),
        (sized(document(TEXT, "chatcmpl-n2")), "mixed"),
        (sized(b'{"error":{"code":"no_replica"}}', status="503 x"), "no_replica"),
        (sized(b'{"error":{"code":500}}', status="500 x"), "upstream_error"),
    ],
)
async def test_whole_answer_is_right_or_says_what_is_wrong(raw: bytes, outcome: str) -> None:
    assert await judged(raw, WHOLE) == outcome


async def test_whole_answer_that_is_cut_is_no_answer() -> None:
    assert await judged(sized(document(TEXT))[:-5], WHOLE, cut=True) == "cut"


async def test_silence_is_a_hung_request() -> None:
    async with FakeReplica(stall(stream(event(TEXT[:4])))) as replica:
        line = Line(replica.port)
        outcome, _ = await line.answer(STREAMED, 0.1, slow=False)
        await line.leave(rudely=True)
    assert outcome == "hung"


async def test_users_of_a_sound_engine_are_all_satisfied() -> None:
    engine = SimulatedEngine(EngineOptions(profile="instant"))
    await engine.start()
    users = Users(engine.port, Habits(leaving=0, slow=0, pause=0.01), seed=1)
    users.start(4)
    await eventually(lambda: users.tally.begun >= 20, "twenty requests", deadline=20)
    await users.stop(5)
    await engine.stop()
    assert users.tally.outcomes == {"ok": users.tally.begun}
    assert engine.records.totals["finished"] == users.tally.begun


async def test_users_that_leave_are_aborted_at_the_engine() -> None:
    engine = SimulatedEngine(EngineOptions(profile="tiny-cpu", speed=0.01))
    await engine.start()
    users = Users(engine.port, Habits(leaving=1, slow=0, pause=0.01, shortest=10, longest=20), seed=1)
    users.start(4)
    await eventually(lambda: engine.aborted >= 4, "some were aborted", deadline=20)
    await users.stop(5)
    await engine.stop()
    assert users.tally.outcomes == {"client_gone": users.tally.begun}


async def test_request_that_outlasts_the_soak_is_hung() -> None:
    engine = SimulatedEngine(EngineOptions(profile="instant"))
    await engine.start()
    engine.inject(kind="hang")
    users = Users(engine.port, Habits(leaving=0, slow=0), seed=1)
    users.start(2)
    await eventually(lambda: engine.records.totals["received"] >= 1, "one hangs", deadline=20)
    await asyncio.wait_for(users.stop(0.1), 10)
    await engine.stop()
    assert set(users.tally.outcomes) == {"hung"}
