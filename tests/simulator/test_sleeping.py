"""An engine that sleeps, over real sockets."""

import json

import pytest

from tests.fakes.client import Answer, request
from tests.fakes.wire import eventually
from tests.simulator.conftest import Connect, Start
from tests.simulator.test_conditions import ENDLESS, HEALTH, METRICS, SLOW, chat, silent, streaming

SLEEP, WAKE_UP = request("POST", "/sleep?level=1"), request("POST", "/wake_up")
IS_SLEEPING = request("GET", "/is_sleeping")


def state(page: bytes, name: str) -> str:
    series = f'vllm:engine_sleep_state{{engine="0",model_name="sim",sleep_state="{name}"}} '
    return page.decode().partition(series)[2].split()[0]


async def test_sleeping_engine_is_healthy_and_keeps_new_requests_waiting(
    start: Start, connect: Connect
) -> None:
    engine = await start()
    operator, stream, whole = [await connect(engine) for _ in range(3)]
    assert (await operator.ask(SLEEP)).status == 200
    assert (await operator.ask(IS_SLEEPING)).json() == {"is_sleeping": True}
    assert (await operator.ask(HEALTH)).status == 200
    page = (await operator.ask(METRICS)).body.entity
    assert (state(page, "awake"), state(page, "weights_offloaded")) == ("0.0", "1.0")
    await stream.send(chat())
    await whole.send(chat(stream=False))
    assert (await stream.head()).status == 200
    assert await silent(whole)
    assert engine.waiting == 2
    assert (await operator.ask(WAKE_UP)).status == 200
    assert (await operator.ask(IS_SLEEPING)).json() == {"is_sleeping": False}
    assert state((await operator.ask(METRICS)).body.entity, "awake") == "1.0"
    assert (await whole.answer()).status == 200
    await stream.wire.expect(b"[DONE]")


async def test_what_runs_is_aborted_and_says_so(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    running, whole, operator = await streaming(engine, connect), await connect(engine), await connect(engine)
    await whole.send(chat(stream=False, max_tokens=10_000))
    await eventually(lambda: engine.running == 2, "both run")
    await operator.ask(request("POST", "/sleep?level=2"))
    streamed, answer = await running.answer(), await whole.answer()
    assert streamed.ended == "clean"
    *_, last, done = streamed.body.chunks
    assert json.loads(last[6:])["choices"][0]["finish_reason"] == "abort"
    assert done == b"data: [DONE]\n\n"
    assert answer.json()["choices"][0]["finish_reason"] == "abort"
    assert (engine.running, engine.waiting) == (0, 0)
    assert state((await operator.ask(METRICS)).body.entity, "discard_all") == "1.0"


async def test_what_runs_may_be_kept(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client, operator = await streaming(engine, connect), await connect(engine)
    await operator.ask(request("POST", "/sleep?mode=keep"))
    client.wire.unread.clear()
    assert await silent(client)
    await operator.ask(WAKE_UP)
    await client.wire.expect(b"data: ")


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/sleep", 405),
        ("POST", "/is_sleeping", 405),
        ("GET", "/reset_prefix_cache", 405),
        ("POST", "/sleep?level=3", 400),
        ("POST", "/sleep?mode=nap", 400),
    ],
)
async def test_what_makes_no_sense_changes_nothing(
    start: Start, connect: Connect, method: str, target: str, status: int
) -> None:
    engine = await start()
    client = await connect(engine)
    assert (await client.ask(request(method, target))).status == status
    assert not engine.asleep
    await client.send(ENDLESS)
    await client.wire.expect(b"data: ")


def asking(text: str) -> bytes:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
    return request("POST", "/v1/chat/completions", json.dumps(body).encode())


def cached(answer: Answer) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("target", ["/reset_prefix_cache", "/sleep?level=1"])
async def test_nothing_is_found_after_a_reset(start: Start, connect: Connect, target: str) -> None:
    client = await connect(await start())
    question = asking("x" * 400)
    assert [cached(await client.ask(question)) for _ in range(2)] == [0, 96]
    assert (await client.ask(request("POST", target))).status == 200
    await client.ask(WAKE_UP)
    assert [cached(await client.ask(question)) for _ in range(2)] == [0, 96]


async def test_nothing_is_forgotten_while_something_runs(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    running, client = await streaming(engine, connect), await connect(engine)
    question = asking("x" * 400)
    await client.ask(question)
    assert (await client.ask(request("POST", "/reset_prefix_cache"))).status == 200
    assert cached(await client.ask(question)) == 96
    assert engine.running == 1
    assert not await silent(running)
