"""Engines that have our requests and do nothing: found out, taken out, and not waited for without end."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from tests.fakes.client import chat
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import (
    OK,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    flow,
    held,
    silence,
    token,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.states import probed, row, until
from tests.fakes.wire import eventually

END = event("[DONE]") + LAST_CHUNK
STEPS = "vllm:iteration_tokens_total_count"
STARTS = 20.0
"""Seconds for an interpreter to start on a busy machine."""

Engine = Callable[..., Awaitable[tuple[Process, str]]]


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    """Start the simulated engine as a process of its own; it and its URL."""
    started: list[Process] = []

    async def start(*flags: str) -> tuple[Process, str]:
        command = (sys.executable, "-m", "replicarouter", "engine", "--port", "0", *flags)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(STARTS):
            await process.stdout.readline()
            url = (await process.stdout.readline()).decode().strip()
        return process, url

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def only_row(router: RunningRouter) -> dict[str, Any]:
    (found,) = (await router.ledger())["replicas"]
    return dict(found)


async def only(router: RunningRouter, **wanted: Any) -> None:
    """Wait until the only replica is described like this."""

    async def reached() -> bool:
        found = await only_row(router)
        return {key: found[key] for key in wanted} == wanted

    await eventually(reached, f"the replica is {wanted}")


STALLS = {"stall_after": 0.5, "stall_end": 1.5, "slow_start": 0}


def freeze(replica: FakeReplica) -> None:
    """From now on its server answers probes and metrics, and its engine does not step."""
    replica.probes.gauges = {STEPS: 7.0}


async def test_a_frozen_engine_is_taken_out_and_its_requests_are_ended_in_the_end(
    start_router: StartRouter,
) -> None:
    frozen, well = FakeReplica(held(SSE_HEAD + event("1"), asyncio.Event())), FakeReplica()
    freeze(frozen)
    router = await start_router(frozen, well, health=STALLS)
    stream = await router.begin(chat())
    await stream.wire.expect(event("1"))
    frozen.script = silence
    well.script = held(b"", gate := asyncio.Event(), OK)
    others = [await router.begin(chat(stream=False)) for _ in range(2)]
    await router.stage(sent=2, streaming=1)
    gate.set()

    await until(router, frozen, "unhealthy")
    found = await row(router, frozen)
    assert found["stalled"]
    assert found["why"] == "stalled: requests, but no byte and no step of its engine"
    assert (await router.metrics()).value("ejections_total", replica=frozen.name, reason="stalled") == 1
    assert [(await router.ask(chat(stream=False))).status for _ in range(5)] == [200] * 5

    answer = await stream.answer()
    assert answer.ended == "dirty"
    assert b"idle_timeout" in answer.body.raw
    assert b"[DONE]" not in answer.body.raw
    statuses = {(one := await client.answer()).status: one for client in others}
    assert set(statuses) == {200, 504}
    statuses[504].refused(504, "response_head_timeout")
    await router.settled()
    for request in frozen.requests:
        await request.aborted()


async def test_a_frozen_engine_that_moves_again_is_used_again(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    frozen = FakeReplica(held(SSE_HEAD, gate, END))
    freeze(frozen)
    router = await start_router(frozen, health={**STALLS, "stall_end": 60})
    client = await router.begin(chat())
    await until(router, frozen, "unhealthy")
    (await router.ask(chat())).refused(503, "no_replica")

    gate.set()
    assert (await client.answer()).ended == "clean"
    await until(router, frozen, "ready")
    assert not (await row(router, frozen))["stalled"]
    assert (await router.ask(chat())).status == 200


async def test_an_engine_whose_tokens_flow_is_not_frozen(start_router: StartRouter) -> None:
    """Whatever it says of its steps, or answers to probes later on: its silence is short all the while."""
    gate = asyncio.Event()
    replica = FakeReplica(flow(gate))
    freeze(replica)
    router = await start_router(replica, health=STALLS)
    stream = await router.begin(chat())
    await stream.wire.expect(token("t0"))
    silences = []
    for number in range(4, 48, 4):
        await stream.wire.expect(token(f"t{number}"))
        metrics = await router.metrics()
        silences.append(metrics.value("replica_silence_seconds", replica=replica.name))
    assert max(silences) < STALLS["stall_after"]
    assert (await row(router, replica))["state"] == "ready"
    sizes = []
    for number in (52, 56):
        await stream.wire.expect(token(f"t{number}"))
        (request,) = (await router.admin("/admin/requests")).json()["requests"]
        sizes.append(request["bytes_out"])
    assert 52 * len(token("t10")) < sizes[0] < sizes[1]
    gate.set()
    assert (await stream.answer()).ended == "clean"
    assert (await router.settled())["finished"] == {"ok": 1}


async def test_a_long_prefill_is_no_stall(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, health=STALLS)
    client = await router.begin(chat(stream=False))
    await replica.received(1)
    for step in range(30):
        replica.probes.gauges = {STEPS: float(step)}
        await probed(replica, 1)
    assert (await row(router, replica))["state"] == "ready"
    gate.set()
    assert (await client.answer()).status == 200


async def test_a_client_that_takes_nothing_is_no_stall_of_its_engine(start_router: StartRouter) -> None:
    """The engine has long done its work; the bytes wait in sockets and in the router."""
    sent: list[bytes] = []

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(1024):
            await connection.send(event(f"{number:08d}" + "x" * 65536))
            sent.append(b"")
        await connection.send(END)

    replica = FakeReplica(script)
    freeze(replica)
    router = await start_router(replica, health=STALLS)
    client = await router.connect(receive_buffer=65536)
    client.wire.transport.pause_reading()
    await client.send(chat())
    await replica.received(1)
    await probed(replica, 30)
    assert 0 < len(sent) < 1024
    found = await row(router, replica)
    assert (found["state"], found["stalled"]) == ("ready", False)
    client.wire.transport.resume_reading()
    assert (await client.answer(30)).ended == "clean"


async def test_streams_of_an_engine_that_shut_its_port_do_not_hang_for_ever(
    start_router: StartRouter,
) -> None:
    """As some engines do on SIGTERM: the port is closed, and open responses get nothing any more."""
    leaving, well = FakeReplica(held(SSE_HEAD + event("1"), asyncio.Event())), FakeReplica()
    router = await start_router(leaving, well, health=STALLS, policy="round-robin")
    streams = [await router.begin(chat()) for _ in range(2)]
    (hanging, whole) = [
        (stream, (await stream.head()).get("X-Replicarouter-Replica") == leaving.name) for stream in streams
    ]
    assert {hanging[1], whole[1]} == {True, False}
    stream = hanging[0] if hanging[1] else whole[0]
    await leaving.refuse()
    await until(router, leaving, "unhealthy")
    await stream.gone()
    assert b"idle_timeout" in stream.wire.unread
    assert b"[DONE]" not in stream.wire.unread
    assert (await row(router, leaving))["why"] in {
        "refuses connections",
        "stalled: requests, but no byte and failed probes",
    }
    await router.settled()


async def test_a_stopped_engine_is_taken_out_and_used_again_when_it_goes_on(
    engine: Engine, start_router: StartRouter
) -> None:
    process, url = await engine("--profile", "tiny-cpu", "--model", "m1")
    router = await start_router(url, health={**STALLS, "timeout": 0.2, "stall_end": 60})
    client = await router.begin(chat(max_tokens=1000, ignore_eos=True))
    await client.head()
    os.kill(process.pid, signal.SIGSTOP)
    await only(router, state="unhealthy", stalled=True)
    assert (await only_row(router))["outstanding"] == 1

    os.kill(process.pid, signal.SIGCONT)
    await only(router, state="ready", stalled=False)
    assert (await router.ask(chat(stream=False, max_tokens=1))).status == 200


async def test_a_stopped_engine_does_not_keep_its_clients_waiting_for_ever(
    engine: Engine, start_router: StartRouter
) -> None:
    process, url = await engine("--profile", "tiny-cpu", "--model", "m1")
    router = await start_router(url, health={**STALLS, "timeout": 0.2})
    stream = await router.begin(chat(max_tokens=1000, ignore_eos=True))
    await stream.head()
    os.kill(process.pid, signal.SIGSTOP)
    whole = await router.begin(chat(stream=False, max_tokens=1000))
    await stream.gone()
    assert b"idle_timeout" in stream.wire.unread
    (await whole.answer()).refused(504, "response_head_timeout")
    assert (await router.metrics()).value("ejections_total", reason="stalled") == 1
    await router.settled()


async def test_streams_of_a_replaced_engine_do_not_hang_for_ever(start_router: StartRouter) -> None:
    """Its port is open again, and it steps for others, while its former responses stay silent."""
    replica = FakeReplica(held(SSE_HEAD + event("1"), asyncio.Event()))
    router = await start_router(replica, health=STALLS)
    stream = await router.begin(chat())
    await stream.wire.expect(event("1"))
    await replica.refuse()
    await until(router, replica, "unhealthy")
    await replica.listen()
    await until(router, replica, "ready")
    stepping = asyncio.ensure_future(step_on(replica))
    try:
        await stream.gone()
        assert b"idle_timeout" in stream.wire.unread
        found = await row(router, replica)
        assert (found["state"], found["stalled"]) == ("ready", False)
    finally:
        stepping.cancel()
    await router.settled()


async def step_on(replica: FakeReplica) -> None:
    """Let its engine step without end."""
    for step in range(1_000_000):
        replica.probes.gauges = {STEPS: float(step)}
        await probed(replica, 1)


async def test_comments_of_a_server_do_not_hide_its_frozen_engine(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(chunk(b": keep-alive\n\n"))
            await asyncio.sleep(0.02)

    frozen = FakeReplica(script)
    freeze(frozen)
    router = await start_router(frozen, health=STALLS)
    client = await router.begin(chat())
    got = await client.wire.read_to_end(15)
    assert b'"code":"idle_timeout"' in got.replace(b" ", b"")
    metrics = await router.metrics()
    assert metrics.value("ejections_total", reason="stalled") == 1
    assert metrics.value("requests_total", outcome="idle_timeout") == 1
