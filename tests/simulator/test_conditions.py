"""Every scripted fault, seen by a raw client of a running engine."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from replicarouter.simulator import SimulatedEngine
from replicarouter.simulator.faults import LOADING
from tests.fakes.client import HOST, Answer, Client, request
from tests.fakes.wire import PeerGone, eventually
from tests.simulator.conftest import Connect, Start

SLOW = {"profile": "tiny-cpu"}
DEAD = b"EngineCore encountered an issue"


def chat(*, stream: bool = True, max_tokens: int = 20, headers: Mapping[str, str] | None = None) -> bytes:
    body = {"messages": [], "stream": stream, "max_tokens": max_tokens, "ignore_eos": True}
    return request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)


ENDLESS = chat(max_tokens=30_000)
HEALTH, MODELS, METRICS = (request("GET", path) for path in ("/health", "/v1/models", "/metrics"))


async def refused(engine: SimulatedEngine) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, engine.port)
    except (ConnectionRefusedError, ConnectionResetError):  # reset: it came just before
        return True
    writer.close()
    await writer.wait_closed()
    return False


async def ask_anew(engine: SimulatedEngine, connect: Connect, raw: bytes) -> Answer:
    return await (await connect(engine)).ask(raw)


async def streaming(engine: SimulatedEngine, connect: Connect) -> Client:
    """A client whose endless stream has begun."""
    client = await connect(engine)
    await client.send(ENDLESS)
    await client.wire.expect(b'"token_ids":null')
    return client


async def silent(client: Client, seconds: float = 0.1) -> bool:
    """Nothing comes any more, and the connection stays."""
    before = client.wire.count_received
    await asyncio.sleep(seconds)
    return client.wire.count_received == before and not client.wire.over


# One request


@pytest.mark.parametrize(("kind", "ending"), [("reset", "rst"), ("close", "fin")])
@pytest.mark.parametrize("stream", [True, False])
async def test_connection_ends_before_the_head(
    start: Start, connect: Connect, kind: str, ending: str, stream: bool
) -> None:
    engine = await start()
    engine.inject(kind=kind, count=1)
    client = await connect(engine)
    await client.send(chat(stream=stream))
    assert await client.gone() == ending
    assert client.wire.count_received == 0
    assert (engine.records.totals["dropped"], engine.requests) == (1, 0)
    assert (await ask_anew(engine, connect, chat(stream=stream))).ended == "clean"


@pytest.mark.parametrize(("kind", "ending"), [("reset", "rst"), ("close", "fin")])
async def test_connection_ends_within_the_head(
    start: Start, connect: Connect, kind: str, ending: str
) -> None:
    engine = await start()
    engine.inject(kind=kind, at="head")
    client = await connect(engine)
    await client.send(chat())
    assert await client.gone() == ending
    assert client.wire.unread.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in client.wire.unread
    await eventually(lambda: engine.records.totals["aborted"] == 1, "it is settled")


@pytest.mark.parametrize(("kind", "ending"), [("reset", "rst"), ("close", "fin")])
@pytest.mark.parametrize("after", [0, 1, 5])
async def test_connection_ends_after_so_many_chunks(
    start: Start, connect: Connect, kind: str, ending: str, after: int
) -> None:
    engine = await start(**SLOW)
    engine.inject(kind=kind, at=after)
    client = await connect(engine)
    answer = await client.ask(chat())
    assert answer.ended == "dirty"
    assert len(answer.body.chunks) == after
    assert await client.gone() == ending
    await eventually(lambda: not engine.running and not engine.waiting, "nothing is generated on")
    assert engine.records.totals["aborted"] == 1
    engine.clear_faults()
    assert (await ask_anew(engine, connect, chat())).ended == "clean"


async def test_whole_answer_is_cut_in_its_body(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="close", at=1)
    answer = await ask_anew(engine, connect, chat(stream=False))
    assert answer.status == 200
    assert answer.ended == "dirty"
    assert 0 < len(answer.body.raw) < int(answer.head.get("content-length") or 0)


async def test_request_hangs_for_ever_and_does_not_run(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="hang", count=1)
    client = await connect(engine)
    await client.send(chat() + HEALTH)
    assert await silent(client)
    assert client.wire.count_received == 0
    assert engine.requests == 0
    assert (await ask_anew(engine, connect, chat())).ended == "clean"
    client.leave()
    await eventually(lambda: len(engine.connections) == 1, "the hung one has gone")
    totals = engine.records.totals
    assert (totals["started"], totals["aborted"], totals["finished"]) == (2, 1, 1)


@pytest.mark.parametrize("after", [0, 4])
async def test_stream_freezes_after_so_many_chunks(start: Start, connect: Connect, after: int) -> None:
    engine = await start()
    engine.inject(kind="hang", at=after)
    client = await connect(engine)
    await client.send(chat())
    await eventually(lambda: client.wire.unread.count(b"\n\n") == after, "its chunks are there")
    await eventually(lambda: engine.requests == 1 and not engine.running, "the engine has done its part")
    (connection,) = engine.connections
    connection.pause_writing()
    connection.resume_writing()
    assert await silent(client)
    assert client.wire.unread.count(b"data: ") == after
    client.leave("rst")
    await eventually(lambda: not engine.connections, "it has gone")
    assert engine.records.totals["aborted"] == 1


async def test_whole_answer_freezes_in_its_body(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="hang", at=1)
    client = await connect(engine)
    await client.send(chat(stream=False))
    await client.head()
    assert await silent(client)
    assert client.wire.unread.startswith(b'{"id":')
    engine.clear_faults()
    await client.send(HEALTH)
    assert await silent(client), "what hangs goes on hanging"


async def test_probes_may_hang_and_generations_not(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="hang", on="probes")
    client = await connect(engine)
    await client.send(HEALTH)
    assert await silent(client)
    assert (await ask_anew(engine, connect, chat())).ended == "clean"


async def test_probe_can_be_cut_within_its_head(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="close", at="head", on="all")
    client = await connect(engine)
    with pytest.raises(PeerGone):
        await client.ask(HEALTH)


@pytest.mark.parametrize("stream", [True, False])
async def test_request_is_begun_late(start: Start, connect: Connect, stream: bool) -> None:
    engine = await start()
    engine.inject(kind="slow", delay=0.2)
    client = await connect(engine)
    began = time.monotonic()
    assert (await client.ask(chat(stream=stream) + HEALTH)).ended == "clean"
    assert time.monotonic() - began >= 0.2
    assert (await client.answer()).status == 200, "what was pipelined behind it comes next"


async def test_client_that_leaves_while_its_request_is_late_is_forgotten(
    start: Start, connect: Connect
) -> None:
    engine = await start()
    engine.inject(kind="slow", delay=0.1)
    client = await connect(engine)
    await client.send(chat(stream=False))
    await eventually(lambda: engine.records.totals["received"] == 1, "it has come")
    client.leave("rst")
    await eventually(lambda: not engine.connections, "it has gone")
    await asyncio.sleep(0.15)
    assert engine.requests == 0


@pytest.mark.parametrize(
    ("said", "status", "words", "retry_after"),
    [
        ({}, 503, b"currently busy", None),
        ({"reason": "loading"}, 503, b"Loading model", None),
        ({"status": 429}, 429, b"Too many", "1"),
        ({"status": 429, "retry_after": 3}, 429, b"Too many", "3"),
        ({"status": 500}, 500, b"InternalServerError", None),
    ],
)
async def test_status_answers_without_running_the_request(
    start: Start, connect: Connect, said: dict[str, Any], status: int, words: bytes, retry_after: str | None
) -> None:
    engine = await start()
    engine.inject(kind="status", count=1, **said)
    client = await connect(engine)
    answer = await client.ask(chat())
    assert (answer.status, answer.head.get("retry-after")) == (status, retry_after)
    assert words in answer.body.entity
    assert (engine.requests, engine.records.totals["refused"]) == (0, 1)
    assert (await client.ask(chat())).status == 200, "the connection goes on"


async def test_draining_engine_refuses_what_is_new_and_finishes_what_runs(
    start: Start, connect: Connect
) -> None:
    engine = await start(**SLOW)
    client = await connect(engine)
    await client.send(chat(max_tokens=60))
    await client.wire.expect(b"data: ")
    engine.inject(kind="draining")
    other = await connect(engine)
    answer = await other.ask(chat())
    assert answer.status == 500
    assert b"cannot schedule new futures after shutdown" in answer.body.entity
    assert (await other.ask(HEALTH)).status == 200
    assert (await client.answer()).ended == "clean"


async def test_malformed_head(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="garbage")
    client = await connect(engine)
    await client.send(chat())
    assert await client.gone() == "fin"
    assert not client.wire.unread.startswith(b"HTTP/1.1 200")


async def test_malformed_chunk(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="garbage", at=2)
    client = await connect(engine)
    await client.send(chat())
    await client.head()
    await client.gone()
    assert client.wire.unread.count(b"data: ") == 2
    assert client.wire.unread.endswith(b"\r\nxyz\r\nnot a chunk\r\n")


# The whole engine


async def test_port_refuses_and_open_connections_go_on(start: Start, connect: Connect) -> None:
    engine = await start()
    client = await connect(engine)
    assert (await client.ask(HEALTH)).status == 200
    port = engine.port
    engine.inject(kind="refuse")
    assert await refused(engine)
    assert (await client.ask(chat())).ended == "clean"
    engine.clear_faults()
    await eventually(lambda: _takes(engine), "it accepts again")
    assert engine.port == port


async def _takes(engine: SimulatedEngine) -> bool:
    return not await refused(engine)


async def test_fault_ends_by_itself_after_its_seconds(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="refuse", seconds=0.1)
    assert await refused(engine)
    await eventually(lambda: _takes(engine), "it accepts again")
    assert engine.faults()["faults"] == []


async def test_a_kind_said_again_replaces_the_earlier_one(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="refuse", seconds=0.05)
    engine.inject(kind="refuse")
    await asyncio.sleep(0.15)
    assert await refused(engine)
    (fault,) = engine.faults()["faults"]
    assert fault["seconds"] is None


async def test_slow_stretches_every_step(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    engine.inject(kind="slow", factor=10)
    began = time.monotonic()
    await ask_anew(engine, connect, chat(max_tokens=10))
    assert time.monotonic() - began >= 0.24, "ten steps of 25 ms"


async def test_frozen_engine_answers_probes_with_numbers_that_stand_still(
    start: Start, connect: Connect
) -> None:
    engine = await start(**SLOW)
    client, probe = await streaming(engine, connect), await connect(engine)
    engine.inject(kind="frozen")
    before = (await probe.ask(METRICS)).body.entity
    client.wire.unread.clear()
    assert await silent(client)
    newcomer = await connect(engine)
    await newcomer.send(ENDLESS)
    assert (await newcomer.head()).status == 200, "the API process sends the head of a stream"
    whole = await connect(engine)
    await whole.send(chat(stream=False))
    assert await silent(whole)
    assert newcomer.wire.unread == b""
    for path in (HEALTH, MODELS):
        assert (await probe.ask(path)).status == 200
    assert (await probe.ask(METRICS)).body.entity == before
    assert b'vllm:num_requests_running{engine="0",model_name="sim"} 1.0' in before
    engine.clear_faults()
    await client.wire.expect(b"data: ")
    await newcomer.wire.expect(b"data: ")
    assert (await whole.answer()).status == 200
    assert (await probe.ask(METRICS)).body.entity != before


async def test_frozen_engine_may_keep_its_heads(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    engine.inject(kind="frozen", heads=False)
    client = await connect(engine)
    await client.send(chat())
    assert await silent(client)
    assert client.wire.count_received == 0


async def test_dead_core_ends_streams_like_a_success(start: Start, connect: Connect) -> None:
    engine = await start(max_num_seqs=1, **SLOW)
    running = await streaming(engine, connect)
    waiting, whole, idle, late = [await connect(engine) for _ in range(4)]
    await waiting.send(ENDLESS)
    await whole.send(chat(stream=False))
    await eventually(lambda: engine.waiting == 2, "two wait")
    assert (await idle.ask(HEALTH)).status == 200
    engine.inject(kind="core_killed", linger=0.2)
    assert (await late.ask(HEALTH)).status == 503
    assert DEAD in (await late.ask(chat())).body.entity
    for client in (running, waiting):
        answer = await client.answer()
        assert (answer.status, answer.ended) == (200, "clean")
        *_, error, done = answer.body.chunks
        assert error.startswith(b'data: {"error": {"message": "EngineCore encountered')
        assert done == b"data: [DONE]\n\n"
    answer = await whole.answer()
    assert answer.status == 500
    assert DEAD in answer.body.entity
    await eventually(lambda: refused(engine), "the port refuses")
    for client in (running, idle, late):
        assert await client.gone() == "fin"


async def test_dead_core_comes_back_as_a_new_engine(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    began = (await ask_anew(engine, connect, METRICS)).body.entity
    await ask_anew(engine, connect, chat())
    engine.inject(kind="core_killed", linger=0, seconds=0.1)
    await eventually(lambda: refused(engine), "the port refuses")
    await eventually(lambda: _takes(engine), "it is back")
    page = (await ask_anew(engine, connect, METRICS)).body.entity
    assert b'vllm:generation_tokens_total{engine="0",model_name="sim"} 0.0' in page
    name = b"\nprocess_start_time_seconds "
    assert page.partition(name)[2].split()[0] > began.partition(name)[2].split()[0]
    assert (await ask_anew(engine, connect, chat())).ended == "clean"


async def test_terminated_engine_leaves_open_answers_silent(start: Start, connect: Connect) -> None:
    engine = await start(keep_alive=60, **SLOW)
    running, idle, whole, late = (
        await streaming(engine, connect),
        await connect(engine),
        await connect(engine),
        await connect(engine),
    )
    await idle.ask(HEALTH)
    await whole.send(chat(stream=False, max_tokens=10_000))
    await eventually(lambda: engine.running == 2, "both run")
    engine.inject(kind="slow", delay=0.05)
    await late.send(chat())
    await eventually(lambda: engine.records.totals["received"] == 3, "the late one has come")
    engine.inject(kind="sigterm_hang")
    assert await refused(engine)
    assert await idle.gone() == "fin"
    running.wire.unread.clear()
    for client in (running, whole, late):
        assert await silent(client)
    assert late.wire.count_received == 0
    engine.clear_faults()
    for client in (running, whole, late):
        await client.gone()
    await eventually(lambda: _takes(engine), "a new one takes its place")
    assert (engine.running, engine.waiting) == (0, 0)
    assert (await ask_anew(engine, connect, chat())).ended == "clean"


async def test_idle_connections_are_closed_when_told(start: Start, connect: Connect) -> None:
    engine = await start()
    client, other = await connect(engine), await connect(engine)
    await client.ask(HEALTH)
    answered = time.monotonic()
    engine.inject(kind="keep_alive", idle=0.2)
    assert await client.gone() == "fin"
    ended = client.wire.ended_at
    assert ended is not None
    assert 0.19 <= ended - answered < 1
    engine.clear_faults()
    await other.ask(HEALTH)
    assert await silent(other, 0.3)


async def test_connection_is_closed_with_its_last_answer(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="connection_close_every", every=3)
    client = await connect(engine)
    said = [(await client.ask(raw)).head.get("connection") for raw in (HEALTH, chat(), chat())]
    assert said == [None, None, "close"]
    assert await client.gone() == "fin"


async def test_health_is_slow_and_nothing_else(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="health_slow", delay=0.2)
    client = await connect(engine)
    began = time.monotonic()
    await client.ask(MODELS)
    await client.ask(chat())
    assert time.monotonic() - began < 0.2
    assert (await client.ask(HEALTH)).status == 200
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("how", ["health", "refuse"])
async def test_flapping_engine_comes_and_goes(start: Start, connect: Connect, how: str) -> None:
    engine = await start()
    client = await connect(engine)
    engine.inject(kind="flapping", how=how, up=0.1, down=0.1)

    async def down() -> bool:
        if how == "refuse":
            return await refused(engine)
        return (await client.ask(HEALTH)).status == 503

    async def up() -> bool:
        return not await down()

    for _ in range(2):
        await eventually(down, "it is down")
        await eventually(up, "it is up")
    engine.clear_faults()
    await eventually(up, "it is up for good")
    await asyncio.sleep(0.25)
    assert await up()


async def test_engine_without_models_lists_none_and_serves_none(start: Start, connect: Connect) -> None:
    engine = await start()
    engine.inject(kind="no_models")
    client = await connect(engine)
    assert (await client.ask(MODELS)).json()["data"] == []
    assert (await client.ask(chat())).status == 404
    assert (await client.ask(HEALTH)).status == 200


async def test_engine_loads_in_phases(start: Start, connect: Connect) -> None:
    engine = await start(load_seconds=4.0, loading=tuple(LOADING))
    assert await refused(engine)
    await eventually(lambda: _takes(engine), "it accepts")
    quiet = await connect(engine)
    await quiet.send(HEALTH)
    assert await silent(quiet)

    client = await connect(engine)

    async def phase() -> str:
        try:
            async with asyncio.timeout(0.1):
                probe = await client.ask(MODELS)
        except TimeoutError:
            return "silent"
        return f"{probe.status} {len(probe.json().get('data', ()))}"

    async def said(wanted: str) -> bool:
        nonlocal client
        if (seen := await phase()) == "silent":
            client = await connect(engine)
        return seen == wanted

    for wanted in ("503 0", "200 0", "200 1"):
        await eventually(lambda wanted=wanted: said(wanted), wanted)
    assert (await ask_anew(engine, connect, chat())).ended == "clean"


async def test_clearing_ends_the_loading(start: Start, connect: Connect) -> None:
    engine = await start(load_seconds=60, loading=("refused", "empty"))
    assert await refused(engine)
    engine.clear_faults()
    await eventually(lambda: _takes(engine), "it accepts")
    assert len((await ask_anew(engine, connect, MODELS)).json()["data"]) == 1


# The end


async def test_engine_ends_with_its_last_request(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client = await connect(engine)
    await client.send(chat(max_tokens=100))
    await client.wire.expect(b"data: ")
    ending = asyncio.ensure_future(engine.terminate(30))
    await eventually(lambda: bool(engine.faults()["faults"]), "it drains")
    assert (await ask_anew(engine, connect, chat())).status == 500
    assert (await ask_anew(engine, connect, HEALTH)).status == 200
    assert (await client.answer()).ended == "clean"
    await ending
    assert await refused(engine)


async def test_engine_that_drains_too_long_ends_all_the_same(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client = await streaming(engine, connect)
    await engine.terminate(0.1)
    await client.gone()
    assert b"[DONE]" not in client.wire.unread


async def test_engine_hangs_until_its_clients_have_gone(start: Start, connect: Connect) -> None:
    engine = await start(**SLOW)
    client = await streaming(engine, connect)
    ending = asyncio.ensure_future(engine.hang_on_terminate())
    await eventually(lambda: refused(engine), "the port refuses")
    assert await silent(client)
    assert not ending.done()
    client.leave()
    await ending
