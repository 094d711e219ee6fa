"""Replicas that refuse a request they never began, and connections that went stale in the pool."""

import asyncio
import time
from typing import Any

import pytest

from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, held, reply, sized, stall
from tests.fakes.running import StartRouter
from tests.fakes.wire import eventually

VLLM_BUSY = sized(
    b'{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again '
    b'later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}',
    status="503 Service Unavailable",
)
VLLM_DRAINS = sized(
    b'{"error":{"message":"cannot schedule new futures after shutdown","code":500}}',
    status="500 Internal Server Error",
)
TOO_MANY = sized(
    b'{"error":{"message":"slow down"}}',
    status="429 Too Many Requests",
    headers="Retry-After: 7\r\nx-ratelimit-remaining-requests: 0\r\n",
)
LOADING = sized(b'{"error":{"message":"Loading model","code":503}}', status="503 Service Unavailable")
BARE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
CHUNKED_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
    + chunk(b'{"error":{"mes')
    + chunk(b'sage":"engine is busy"}}')
    + LAST_CHUNK
)
UNTIL_CLOSE_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nserver busy"
REFUSALS = {
    "busy": VLLM_BUSY,
    "429": TOO_MANY,
    "loading": LOADING,
    "bare-503": BARE,
    "draining": VLLM_DRAINS,
    "chunked": CHUNKED_BUSY,
}
STEADY = {"interval": 1000}
NEVER_EJECT = {"consecutive_failures": 1000}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_request_is_served_elsewhere(
    start_router: StartRouter, refusal: bytes, stream: bool
) -> None:
    refusing, live = FakeReplica(reply(refusal)), FakeReplica()
    router = await start_router(refusing, live, policy="round-robin", health=STEADY, eject=NEVER_EJECT)
    answers = [await router.ask(chat(stream=stream)) for _ in range(4)]
    assert [answer.status for answer in answers] == [200] * 4
    assert {answer.head.get("x-replicarouter-replica") for answer in answers} == {live.name}
    assert len(live.requests) == 4
    assert refusing.requests
    ids = [received.head.get("x-request-id") for received in live.requests + refusing.requests]
    assert len(set(ids)) == len(ids)
    metrics = await router.metrics()
    assert metrics.value("requests_total", outcome="ok") == 4
    assert metrics.value("retries_total") == len(refusing.requests)


@pytest.mark.parametrize(
    "refusal", [VLLM_BUSY, TOO_MANY, CHUNKED_BUSY, UNTIL_CLOSE_BUSY, LOADING, VLLM_DRAINS]
)
async def test_if_nobody_accepts_the_client_gets_the_engines_own_answer(
    start_router: StartRouter, refusal: bytes
) -> None:
    """H26"""
    script = reply(refusal, then="fin" if refusal is UNTIL_CLOSE_BUSY else "keep")
    replicas = [FakeReplica(script) for _ in range(3)]
    router = await start_router(*replicas, health=STEADY, eject=NEVER_EJECT)
    answer = await router.ask(chat())
    head, _, body = refusal.partition(b"\r\n\r\n")
    assert answer.status == int(head[9:12])
    assert answer.body.raw == body
    assert answer.head.get("retry-after") == ("7" if refusal is TOO_MANY else None)
    if refusal is TOO_MANY:
        assert answer.head.get("x-ratelimit-remaining-requests") == "0"
    assert [len(replica.requests) for replica in replicas] == [1, 1, 1]
    metrics = await router.metrics()
    assert metrics.value("requests_total", outcome="upstream_error") == 1
    assert metrics.value("attempts_total") == 3


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"api_key": "sk-second"}, "sk-second"), ({}, "sk-caller")],
    ids=["keyed", "keyless"],
)
async def test_a_key_never_goes_to_another_replica_than_its_own(
    start_router: StartRouter, settings: dict[str, Any], key: str
) -> None:
    """A retry is written anew: the second replica sees its own key, or the caller's where it has none."""
    busy, second = FakeReplica(reply(VLLM_BUSY), api_key="sk-first"), FakeReplica(**settings)
    router = await start_router(busy, second, policy="round-robin", health=STEADY)
    for _ in range(2):
        answer = await router.ask(chat(headers={"Authorization": "Bearer sk-caller"}))
        assert answer.status == 200
    assert {one.head.get("authorization") for one in busy.requests} == {"Bearer sk-first"}
    assert {one.head.get("authorization") for one in second.requests} == {f"Bearer {key}"}


async def test_a_single_replicas_refusal_passes_unchanged(start_router: StartRouter) -> None:
    """H06, H26"""
    for refusal in (VLLM_BUSY, TOO_MANY, BARE, CHUNKED_BUSY, VLLM_DRAINS):
        replica = FakeReplica(reply(refusal))
        router = await start_router(replica, health=STEADY)
        answer = await router.ask(chat())
        head, _, body = refusal.partition(b"\r\n\r\n")
        assert (answer.status, answer.body.raw) == (int(head[9:12]), body)
        assert len(replica.requests) == 1


async def test_the_clients_connection_serves_on_behind_a_refusal(start_router: StartRouter) -> None:
    replicas = [FakeReplica(reply(CHUNKED_BUSY)) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    client = await router.connect()
    for _ in range(3):
        assert (await client.ask(chat())).status == 503
    client.leave()


async def test_an_old_client_gets_a_chunked_refusal_without_chunks(start_router: StartRouter) -> None:
    replicas = [FakeReplica(reply(CHUNKED_BUSY)) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    client = await router.begin(chat().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    head = await client.head()
    assert head.framing == []
    assert await client.wire.read_to_end() == b'{"error":{"message":"engine is busy"}}'


@pytest.mark.parametrize("status", ["500 Internal Server Error", "502 Bad Gateway", "400 Bad Request"])
async def test_an_error_of_a_request_that_ran_is_not_tried_again(
    start_router: StartRouter, status: str
) -> None:
    replicas = [FakeReplica(reply(sized(b'{"error":{"message":"boom"}}', status=status))) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    assert (await router.ask(chat())).status == int(status[:3])
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_a_long_503_is_passed_on(start_router: StartRouter) -> None:
    long = sized(b"busy" * 10_000, status="503 Service Unavailable")
    replicas = [FakeReplica(reply(long)) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    answer = await router.ask(chat())
    assert (answer.status, answer.body.entity) == (503, b"busy" * 10_000)
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_a_503_that_never_ends_is_passed_on_as_it_comes(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    before = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbu"
    replicas = [FakeReplica(held(before, gate, b"sy")) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    client = await router.begin(chat())
    assert (await client.head()).status == 503
    await client.wire.expect(b"bu")
    gate.set()
    await client.wire.expect(b"busy")


async def test_a_refusal_cut_short_is_a_lost_answer(start_router: StartRouter) -> None:
    cut = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 40\r\n\r\nbu"
    replicas = [FakeReplica(reply(cut, then="fin")) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    (await router.ask(chat())).refused(502, "replica_disconnected")


async def test_a_client_that_leaves_while_a_refusal_is_held_ends_the_attempt(
    start_router: StartRouter,
) -> None:
    before = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbu"
    replicas = [FakeReplica(held(before, asyncio.Event())) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY)
    client = await router.begin(chat())
    await router.stage(sent=1)
    client.leave()
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    await eventually(lambda: all(one.gone for replica in replicas for one in replica.requests), "an abort")


async def test_busy_everywhere_else_is_not_waited_for(start_router: StartRouter) -> None:
    """The other replica is full: the client hears at once that this one is busy."""
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"first" in received.body:
            await gate.wait()
            await connection.send(OK)
        else:
            await connection.send(TOO_MANY)

    replicas = [FakeReplica(script) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY, admission={"max_outstanding_per_replica": 1})
    first = await router.begin(chat(user="first"))
    await router.stage(sent=1)
    began = time.monotonic()
    assert (await router.ask(chat())).status == 429
    assert time.monotonic() - began < 1.0
    gate.set()
    assert (await first.answer()).status == 200


async def test_a_refused_connection_behind_a_busy_replica_leaves_the_busy_answer(
    start_router: StartRouter,
) -> None:
    busy, down = FakeReplica(reply(TOO_MANY)), FakeReplica()
    router = await start_router(busy, down, policy="round-robin", health=STEADY)
    await down.refuse()
    for _ in range(3):
        answer = await router.ask(chat())
        assert answer.status == 429
        assert answer.head.get("retry-after") == "7"
        assert answer.head.get("x-replicarouter-replica") == busy.name


async def test_retries_end_with_their_budget(start_router: StartRouter) -> None:
    busy, live = FakeReplica(reply(TOO_MANY)), FakeReplica(reply(TOO_MANY))
    retry = {"budget": 0, "budget_floor": 0.2}  # two in ten seconds
    router = await start_router(busy, live, policy="round-robin", health=STEADY, retry=retry)
    for _ in range(6):
        assert (await router.ask(chat())).status == 429
    metrics = await router.metrics()
    assert metrics.value("retries_total", reason="busy") == 2
    assert len(busy.requests) + len(live.requests) == 8


async def test_a_fleet_that_was_full_a_moment_ago_serves_at_once(start_router: StartRouter) -> None:
    replicas = [FakeReplica(reply(TOO_MANY)) for _ in range(3)]
    router = await start_router(*replicas, health=STEADY)
    for _ in range(10):
        assert (await router.ask(chat())).status == 429
    for replica in replicas:
        replica.script = reply(OK)
    began = time.monotonic()
    for _ in range(10):
        assert (await router.ask(chat())).status == 200
    assert time.monotonic() - began < 2.5


def closes_idle(*, after: int = 1) -> FakeReplica:
    """A replica that answers `after` requests on each connection and ends it when one more comes."""

    async def script(_: Received, connection: Connection) -> None:
        if len(connection.requests) > after:
            connection.wire.close()
        else:
            await connection.send(OK)

    return FakeReplica(script)


async def test_a_stale_connection_costs_nobody_an_answer(start_router: StartRouter) -> None:
    """H18: the replica closes as the request is written."""
    replica = closes_idle()
    router = await start_router(replica, health=STEADY)
    answers = [await router.ask(chat()) for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 6
    metrics = await router.metrics()
    assert metrics.value("retries_total", reason="stale_connection") >= 3
    assert metrics.value("attempts_total", result="ok") == 6
    ids = [received.head.get("x-request-id") for received in replica.requests]
    assert len(set(ids)) == len(ids)


async def test_a_new_connection_that_closes_is_not_stale(start_router: StartRouter) -> None:
    replica = closes_idle(after=0)
    router = await start_router(replica, health=STEADY)
    (await router.ask(chat())).refused(502, "replica_disconnected")
    assert len(replica.requests) == 1


async def test_a_connection_that_has_said_anything_was_not_stale(start_router: StartRouter) -> None:
    """An interim head shows that the replica has seen the request."""

    async def script(_: Received, connection: Connection) -> None:
        if len(connection.requests) > 1:
            await connection.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            connection.wire.close()
        else:
            await connection.send(OK)

    replica = FakeReplica(script)
    router = await start_router(replica, health=STEADY)
    assert (await router.ask(chat())).status == 200
    (await router.ask(chat())).refused(502, "replica_disconnected")
    assert len(replica.requests) == 2
    assert (await router.metrics()).value("retries_total") == 0


async def test_the_window_of_stale_connections_can_be_shut(start_router: StartRouter) -> None:
    replica = closes_idle()
    router = await start_router(replica, health=STEADY, retry={"budget": 0, "budget_floor": 0})
    assert (await router.ask(chat())).status == 200
    (await router.ask(chat())).refused(502, "replica_disconnected")


async def test_resending_is_for_those_who_ask_for_it(start_router: StartRouter) -> None:
    async def dies(_: Received, connection: Connection) -> None:
        connection.wire.close()

    dying, live = FakeReplica(dies), FakeReplica()
    router = await start_router(dying, live, policy="round-robin", health=STEADY, retry={"resend": True})
    assert [(await router.ask(chat())).status for _ in range(4)] == [200] * 4
    assert dying.requests


async def test_a_stream_is_never_resent_once_it_began(start_router: StartRouter) -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nbegun"
    replicas = [FakeReplica(reply(begun, then="fin")) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY, retry={"resend": True})
    answer = await router.ask(chat(stream=False))
    assert answer.ended == "dirty"
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_a_quiet_stream_gets_comments_between_its_events(start_router: StartRouter) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    async def script(_: Received, connection: Connection) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await connection.send(head + chunk(b"data: 1\n\n"))
        await gates[0].wait()
        await connection.send(chunk(b"data: hal"))
        await gates[1].wait()
        await connection.send(chunk(b"f\n\n") + LAST_CHUNK)

    replica = FakeReplica(script)
    router = await start_router(replica, health=STEADY, sse_keepalive=0.05)
    client = await router.begin(chat())
    head = await client.head()
    comment = chunk(b": keep-alive\n\n")
    await client.wire.expect(comment + comment)
    gates[0].set()
    await client.wire.read_until(b"data: hal\r\n")
    # In the middle of an event nothing may be put in, however long it lasts.
    await asyncio.sleep(0.3)
    assert bytes(client.wire.unread) == b""
    gates[1].set()
    body = await client.body(head)
    assert body.ended == "clean"
    assert body.entity.startswith(b"f\n\n")


async def test_an_answer_that_is_no_event_stream_gets_no_comments(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", gate, LAST_CHUNK))
    router = await start_router(replica, health=STEADY, sse_keepalive=0.05)
    client = await router.begin(request("POST", "/v1/embeddings", body=b'{"model":"m1"}'))
    head = await client.head()
    await asyncio.sleep(0.3)
    assert bytes(client.wire.unread) == b""
    gate.set()
    assert (await client.body(head)).ended == "clean"


async def test_times_are_those_of_the_attempt_that_was_answered(start_router: StartRouter) -> None:
    refusing, gone = FakeReplica(), FakeReplica()

    async def refuse(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.05)
        await connection.send(LOADING)

    refusing.script = refuse
    router = await start_router(refusing, gone, policy="round-robin", health=STEADY, eject=NEVER_EJECT)
    await gone.refuse()
    # One of the first two begins at the replica that refuses, and goes on to the one that is gone.
    for _ in range(2):
        answer = await router.ask(chat(stream=False))
        assert answer.status == 503
        assert answer.head.get("x-replicarouter-replica") == refusing.name
        times = dict(part.split(";dur=") for part in (answer.head.get("server-timing") or "").split(", "))
        assert set(times) == {"queue", "connect", "head"}
        assert all(float(milliseconds) >= 0 for milliseconds in times.values()), times
        assert float(times["head"]) >= 50
    metrics = await router.metrics()
    assert all(total >= 0 for _, total in metrics.series("connect_seconds_sum"))


async def test_attempt_that_was_never_sent_has_no_time_of_connecting(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    refusing, slow = FakeReplica(held(b"", gate, LOADING)), FakeReplica()
    router = await start_router(refusing, slow, policy="round-robin", health=STEADY, eject=NEVER_EJECT)
    await slow.stop_answering_connects()
    clients = [await router.begin(chat(stream=False)) for _ in range(2)]
    await router.stage(sent=1, connecting=1)
    gate.set()
    await router.stage(connecting=2)
    for client in clients:
        client.leave("rst")
    await router.settled()
    assert (await router.metrics()).series("connect_seconds_sum") == []


async def test_a_stale_connection_of_a_replica_that_is_gone_is_the_end_of_its_request(
    start_router: StartRouter,
) -> None:
    """It may have read the request before it died: nobody else gets it."""
    live = FakeReplica()

    async def script(received: Received, connection: Connection) -> None:
        if b"first" in received.body:
            await connection.send(OK)
            return
        await dying.refuse()
        connection.wire.reset()

    dying = FakeReplica(script)
    router = await start_router(dying, live, policy="round-robin", health=STEADY)
    statuses = [(await router.ask(chat(user="first"))).status for _ in range(2)]
    assert statuses == [200, 200]
    answers = [await router.ask(chat(user="second")) for _ in range(2)]
    assert sorted(answer.status for answer in answers) == [200, 502]
    assert len([one for one in dying.requests + live.requests if b"second" in one.body]) == 2


async def test_a_client_that_leaves_at_done_had_its_whole_answer(start_router: StartRouter) -> None:
    """The openai client closes its connection at `[DONE]`, before the last chunk."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    last = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    sent = SSE_HEAD + chunk(last) + chunk(usage) + chunk(b"data: [DONE]\n\n")
    replica = FakeReplica(stall(sent))
    router = await start_router(replica, health=STEADY)
    client = await router.begin(chat())
    await client.wire.expect(b"[DONE]")
    client.leave()
    ledger = await router.settled()
    assert ledger.finished == {"ok": 1}
    metrics = await router.metrics()
    assert metrics.value("tokens_total", kind="completion") == 2
    assert metrics.value("attempts_total", result="ok") == 1
    assert metrics.value("client_gone_total") == 0
    await replica.requests[0].aborted()


async def test_a_stream_that_its_engine_gave_up_is_no_success(start_router: StartRouter) -> None:
    """vLLM ends queued streams like this when it is terminated."""
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    whole = SSE_HEAD + chunk(role) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    router = await start_router(FakeReplica(reply(whole)), health=STEADY)
    answer = await router.ask(chat())
    assert answer.ended == "clean"
    ledger = await router.settled()
    assert ledger.finished == {"upstream_error": 1}


async def test_busy_inside_a_stream_is_no_failure_of_its_replica(start_router: StartRouter) -> None:
    busy = b'data: {"error": {"message": "The engine is busy", "code": 503}}\n\n'
    whole = SSE_HEAD + chunk(busy) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    replicas = [FakeReplica(reply(whole)) for _ in range(2)]
    router = await start_router(*replicas, health=STEADY, eject={"consecutive_failures": 1})
    for _ in range(6):
        assert (await router.ask(chat())).ended == "clean"
    ledger = await router.settled()
    assert ledger.finished == {"upstream_error": 6}
    assert (await router.metrics()).value("ejections_total") == 0
