"""Replicas that fail requests are set aside, whatever their probes say; those that refuse them are not."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from tests.fakes.client import Answer, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    held,
    reply,
    silence,
    sized,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.states import row, until
from tests.fakes.wire import eventually

FOR_LONG = {"base_seconds": 60, "max_seconds": 60}
SHORTLY = {"consecutive_failures": 3, "base_seconds": 1.5, "max_seconds": 1.5}
BROKEN = sized(b'{"error":{"message":"CUDA error"}}', status="500 Internal Server Error")


def failing(received: Received) -> bool:
    return b"BAD" in received.body


async def ask_in_turn(router: RunningRouter, count: int, **body: Any) -> Counter[int]:
    """One request after another; how often each status came."""
    return Counter([(await router.ask(chat(stream=False, **body))).status for _ in range(count)])


async def test_a_replica_that_hangs_is_set_aside_and_the_others_do_not_notice(
    start_router: StartRouter, workers: int
) -> None:
    """H17"""
    hung, well = FakeReplica(silence), FakeReplica()
    # Of ten requests in turn it gets five; with several workers, depending on who gets which, four at least.
    eject = FOR_LONG if workers < 2 else {**FOR_LONG, "consecutive_failures": 4}
    router = await start_router(
        hung, well, policy="round-robin", timeouts={"response_head": 1.0}, eject=eject
    )
    seconds: dict[int, list[float]] = {200: [], 504: []}

    async def ask(number: int) -> None:
        began = time.monotonic()
        answer = await router.ask(chat(stream=False, user=f"number-{number}-"))
        seconds[answer.status].append(time.monotonic() - began)
        if answer.status == 504:
            answer.refused(504, "response_head_timeout")

    for start in range(0, 60, 10):
        await asyncio.gather(*(ask(number) for number in range(start, start + 10)))

    # Those of the first round; the second finds it ejected. Workers take turns each for itself.
    assert len(hung.requests) == len(seconds[504])
    assert abs(len(seconds[504]) - 5) < max(workers, 1)
    assert len(seconds[200]) == 60 - len(seconds[504])
    assert max(seconds[200]) < 0.9
    assert min(seconds[504]) >= 1.0
    for request in hung.requests:
        await request.aborted()
        assert not [one for one in well.requests if one.body == request.body]
    found = await row(router, hung)
    assert (found["state"], found["health"]) == ("ejected", "ejected")
    assert found["why"] == "ejected for 60 s: response_head_timeout"
    assert 0 < found["ejected_until"] <= 60
    metrics = await router.metrics()
    assert metrics.value("ejections_total", replica=hung.name, reason="response_head_timeout") == 1
    assert metrics.value("replica_state", replica=hung.name, state="ejected") == 1
    await router.settled()


async def test_a_frozen_engine_behind_green_probes_gets_trials_only_and_comes_back(
    start_router: StartRouter,
) -> None:
    """H57"""
    frozen, well = FakeReplica(silence), FakeReplica()
    frozen.probes.gauges = {"vllm:num_requests_running": 3.0}
    router = await start_router(
        frozen,
        well,
        policy="round-robin",
        timeouts={"response_head": 0.1},
        eject=SHORTLY,
        health={"slow_start": 0},
    )
    assert (await ask_in_turn(router, 6))[504] == 3
    await until(router, frozen, "ejected")
    assert await ask_in_turn(router, 10) == {200: 10}

    await until(router, frozen, "ready")
    assert (await row(router, frozen))["trial"]
    answers = await ask_in_turn(router, 10)
    assert answers[504] == 1, "one request on trial, and it is out again"
    assert (await router.metrics()).value("ejections_total", replica=frozen.name) == 2

    frozen.script = reply(OK)
    frozen.requests.clear()

    async def back() -> bool:
        await router.ask(chat(stream=False))
        found = await row(router, frozen)
        return found["state"] == "ready" and not found["trial"]

    await eventually(back, "the replica has passed its trial")
    await ask_in_turn(router, 10)
    assert len(frozen.requests) >= 4


async def test_a_replica_on_trial_has_one_request_at_a_time(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    broken, well = FakeReplica(reply(BROKEN)), FakeReplica()
    router = await start_router(broken, well, policy="round-robin", eject=SHORTLY)
    await ask_in_turn(router, 6)
    broken.script = held(b"", gate, OK)
    broken.requests.clear()
    await until(router, broken, "ready")

    clients = [await router.begin(chat(stream=False)) for _ in range(8)]
    await broken.received(1)
    await well.received(7 + 3)
    assert len(broken.requests) == 1
    gate.set()
    assert {(await client.answer()).status for client in clients} == {200}


async def test_a_stream_that_has_begun_ends_a_trial(start_router: StartRouter) -> None:
    """A stream may go on for an hour: nobody waits for its end."""
    gate = asyncio.Event()
    broken, well = FakeReplica(reply(BROKEN)), FakeReplica()
    router = await start_router(broken, well, policy="round-robin", eject=SHORTLY)
    await ask_in_turn(router, 6)
    broken.script = held(SSE_HEAD + event("1"), gate, event("[DONE]") + LAST_CHUNK)
    well.script = reply(SHORT_STREAM)
    broken.requests.clear()
    await until(router, broken, "ready")
    clients = [await router.begin(chat()) for _ in range(2)]
    await broken.received(1)

    async def trusted() -> bool:
        return not (await row(router, broken))["trial"]

    await eventually(trusted, "its trial is over")
    gate.set()
    assert [(await client.answer()).ended for client in clients] == ["clean", "clean"]


async def test_a_replica_that_fails_fast_attracts_nothing(start_router: StartRouter) -> None:
    """H58"""

    async def slowly(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.02)
        await connection.send(OK)

    broken = FakeReplica(reply(BROKEN))
    slow = [FakeReplica(slowly) for _ in range(2)]
    router = await start_router(broken, *slow, eject=FOR_LONG)
    statuses: Counter[int] = Counter()

    async def user() -> None:
        statuses.update(await ask_in_turn(router, 20))

    await asyncio.gather(*(user() for _ in range(20)))

    assert statuses.total() == 400
    assert statuses[500] == len(broken.requests)
    assert 5 <= len(broken.requests) <= 20
    assert min(len(replica.requests) for replica in slow) >= 150
    assert (await row(router, broken))["why"] == "ejected for 60 s: http_500"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429])
async def test_errors_of_clients_are_not_held_against_a_replica(
    start_router: StartRouter, status: int
) -> None:
    """H59"""

    async def script(received: Received, connection: Connection) -> None:
        await connection.send(sized(b'{"error":{}}', status=f"{status} X") if failing(received) else OK)

    replicas = [FakeReplica(script) for _ in range(2)]
    router = await start_router(*replicas, eject={"consecutive_failures": 2})
    for _ in range(5):
        answers = await router.ask_each([chat(stream=False, user="BAD")] * 10)
        assert {answer.status for answer in answers} == {status}

    assert await ask_in_turn(router, 20) == {200: 20}
    rows = [await row(router, replica) for replica in replicas]
    assert [(found["state"], found["why"]) for found in rows] == [("ready", "probes pass")] * 2
    metrics = await router.metrics()
    assert metrics.value("ejections_total") == 0
    assert metrics.value("requests_total", outcome="upstream_error") == 50
    assert metrics.value("requests_total", outcome="ok") == 20


async def test_clients_that_leave_are_not_held_against_a_replica(start_router: StartRouter) -> None:
    """H59"""
    gate = asyncio.Event()
    replica, other = (FakeReplica(held(b"", gate, OK)) for _ in range(2))
    router = await start_router(replica, other, eject={"consecutive_failures": 2})
    for _ in range(3):
        clients = [await router.begin(chat()) for _ in range(6)]
        await router.stage(sent=6)
        for client in clients:
            client.leave("rst")
        await router.settled()
    gate.set()

    assert await ask_in_turn(router, 10) == {200: 10}
    assert (await router.metrics()).value("ejections_total") == 0


FAILURES: dict[str, tuple[bytes, str, str]] = {
    "500": (BROKEN, "keep", "http_500"),
    "no answer": (b"", "rst", "replica_disconnected"),
    "cut stream": (SSE_HEAD + event("1"), "rst", "replica_disconnected"),
    "not HTTP": (b"SSH-2.0-x\r\n\r\n", "fin", "bad_replica_response"),
    "in-band": (
        SSE_HEAD + event('{"error":{"message":"dead","code":500}}') + event("[DONE]") + LAST_CHUNK,
        "keep",
        "in_band_error",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_what_speaks_against_a_replica_ejects_it(start_router: StartRouter, name: str) -> None:
    raw, then, reason = FAILURES[name]
    broken, well = FakeReplica(reply(raw, then=then)), FakeReplica(reply(SHORT_STREAM))  # type: ignore[arg-type]
    router = await start_router(
        broken, well, policy="round-robin", eject={**FOR_LONG, "consecutive_failures": 3}
    )
    for _ in range(8):
        await router.ask(chat())

    assert (await row(router, broken))["state"] == "ejected"
    assert (await router.metrics()).value("ejections_total", replica=broken.name, reason=reason) == 1
    assert len(broken.requests) == 3


async def test_the_only_replica_is_not_ejected(start_router: StartRouter) -> None:
    """What it answers is better than nothing."""
    router = await start_router(FakeReplica(reply(BROKEN)), eject={"consecutive_failures": 2})
    assert await ask_in_turn(router, 12) == {500: 12}


async def test_half_of_a_pool_is_not_ejected(start_router: StartRouter) -> None:
    broken = [FakeReplica(reply(BROKEN)) for _ in range(3)]
    well = FakeReplica()
    router = await start_router(
        *broken, well, policy="round-robin", eject={**FOR_LONG, "consecutive_failures": 2}
    )
    await ask_in_turn(router, 24)
    states = Counter([(await row(router, replica))["state"] for replica in [*broken, well]])
    assert states == {"ejected": 2, "ready": 2}


async def test_a_busy_replica_cools_and_is_used_again(start_router: StartRouter) -> None:
    busy = sized(b"{}", status="429 Too Many Requests", headers="Retry-After: 60\r\n")
    full, free = FakeReplica(reply(busy)), FakeReplica()
    router = await start_router(full, free, policy="round-robin")
    answers: list[Answer] = [await router.ask(chat(stream=False)) for _ in range(6)]
    assert {answer.status for answer in answers} == {200}
    assert len(full.requests) == 1
    assert (await row(router, full))["cooling"]
    assert (await row(router, full))["state"] == "ready"

    full.script = reply(OK)
    await free.refuse()
    free.reset_all()
    await until(router, free, "unhealthy")
    assert await ask_in_turn(router, 3) == {200: 3}


async def test_an_engine_that_shuts_down_is_ejected_at_once(start_router: StartRouter) -> None:
    """Its probes pass while it drains, and its port is open."""
    goodbye = sized(
        b'{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError"}}',
        status="500 Internal Server Error",
    )
    leaving, well = FakeReplica(reply(goodbye)), FakeReplica()
    router = await start_router(leaving, well, policy="round-robin", eject=FOR_LONG)
    assert await ask_in_turn(router, 10) == {200: 10}
    assert len(leaving.requests) == 1
    metrics = await router.metrics()
    assert metrics.value("ejections_total", replica=leaving.name, reason="shutting_down") == 1


async def test_trial_is_not_judged_by_a_refusal_of_an_older_request(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"old" in received.body:
            await gate.wait()
            await connection.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        else:
            await connection.send(BROKEN)

    failed, well = FakeReplica(script), FakeReplica()
    once = {"consecutive_failures": 1, "base_seconds": 0.3, "max_seconds": 0.3}
    router = await start_router(failed, well, policy="round-robin", eject=once, health={"slow_start": 0})
    old = [await router.begin(chat(stream=False, user="old")) for _ in range(2)]
    await router.stage(sent=1)
    assert (await ask_in_turn(router, 2))[500] == 1

    async def on_trial() -> bool:
        return bool((await row(router, failed))["trial"])

    await eventually(on_trial, "it is back on trial")
    gate.set()
    assert [(await client.answer()).status for client in old] == [200, 200]
    metrics = await router.metrics()
    assert metrics.value("attempts_total", replica=failed.name, result="unavailable") == 1
    assert metrics.value("ejections_total", replica=failed.name) == 1
