"""What may be sent a second time: only what no replica has seen."""

import asyncio

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import chat, chat_body, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
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
from tests.fakes.running import StartRouter
from tests.fakes.wire import Ending, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
SLOW_HEALTH = {"interval": 1000}


def ending_without_answer(how: Ending, pause: float, sent: bytes = b"") -> "FakeReplica":
    """A replica that answers a request that says "first", and ends the connection on any other."""

    async def script(received: Received, connection: Connection) -> None:
        if b"first" in received.body:
            await connection.send(OK)
            return
        await asyncio.sleep(pause)
        if sent:
            await connection.send(sent)
        connection.wire.close() if how == "fin" else connection.wire.reset()

    return FakeReplica(script, name="ending")


@pytest.mark.parametrize("reused", [True, False], ids=["reused", "fresh"])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nConte"], ids=["no-byte", "half-a-head"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_request_that_was_read_is_never_sent_again(
    start_router: StartRouter, how: Ending, sent: bytes, reused: bool
) -> None:
    # The pause is what tells a request that was read from the race of an idle connection's end.
    replica = ending_without_answer(how, 0.1, sent)
    spare = FakeReplica(reply(OK), models=["other"])
    router = await start_router(replica, spare)
    if reused:
        assert (await router.ask(chat(user="first"))).status == 200
    (await router.ask(chat(user="second"))).refused(502, "replica_disconnected")
    await router.settled()
    assert len([received for received in replica.requests if b"second" in received.body]) == 1
    assert spare.requests == []
    assert len(replica.used_connections) == 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_request_that_was_read_is_not_sent_to_an_idle_twin(
    start_router: StartRouter, how: Ending
) -> None:
    twins = [FakeReplica(silence) for _ in range(2)]

    async def script(_: Received, connection: Connection) -> None:
        connection.wire.close() if how == "fin" else connection.wire.reset()

    for twin in twins:
        twin.script = script
    router = await start_router(*twins)
    for _ in range(4):
        (await router.ask(chat())).refused(502, "replica_disconnected")
    assert sum(len(twin.requests) for twin in twins) == 4


@pytest.mark.parametrize("policy", POLICIES)
async def test_refused_connections_are_retried_elsewhere(start_router: StartRouter, policy: str) -> None:
    down, *live = replicas = [FakeReplica() for _ in range(3)]
    router = await start_router(*replicas, policy=policy, health=SLOW_HEALTH)
    await down.refuse()
    for _ in range(30):
        assert (await router.ask(chat())).status == 200
    answers = await router.ask_each([chat()] * 30)
    assert [answer.status for answer in answers] == [200] * 30
    assert down.requests == []
    counts = [len(replica.requests) for replica in live]
    assert sum(counts) == 60
    if policy not in {"random", "prefix-hash"}:  # to the latter all of them are one conversation
        assert min(counts) >= 20, counts
    metrics = await router.metrics()
    assert metrics.value("requests_total", outcome="ok") == 60
    assert metrics.value("retries_total") == metrics.value("attempts_total", result="connect_failed")


@pytest.mark.parametrize("policy", POLICIES)
async def test_refusing_replica_is_set_aside_and_comes_back(start_router: StartRouter, policy: str) -> None:
    down, live = FakeReplica(), FakeReplica()
    router = await start_router(down, live, policy=policy, health={"slow_start": 0})
    await down.refuse()

    async def state() -> bool:
        return str((await router.ledger()).replica(down)["state"]) == "unhealthy"

    await eventually(state, "the replica that refuses is unhealthy")
    for _ in range(10):
        assert (await router.ask(chat())).status == 200
    await down.listen()
    await router.until_ready(2)
    for number in range(20):
        conversation = chat(messages=[{"role": "user", "content": f"question {number}"}])
        assert (await router.ask(conversation)).status == 200
    assert len(down.requests) >= 1


async def test_refused_request_makes_the_replica_unhealthy_at_once(start_router: StartRouter) -> None:
    down, live = FakeReplica(), FakeReplica()
    router = await start_router(down, live, policy="round-robin", health=SLOW_HEALTH)
    await down.refuse()
    for _ in range(2):
        assert (await router.ask(chat())).status == 200

    async def unhealthy() -> bool:
        return str((await router.ledger()).replica(down)["state"]) == "unhealthy"

    await eventually(unhealthy, "a probe follows the refusal")


async def test_all_refusing_is_a_502_and_then_a_503(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(2)]
    router = await start_router(*replicas, health=SLOW_HEALTH)
    for replica in replicas:
        await replica.refuse()
    (await router.ask(chat())).refused(502, "connect_failed")

    async def nobody() -> bool:
        return (await router.get("/ready")).status == 503

    await eventually(nobody, "the router is not ready")
    answer = await router.ask(chat())
    answer.refused(503, "no_replica")
    assert int(answer.head.get("retry-after") or 0) >= 1


async def test_no_more_attempts_than_configured(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(5)]
    router = await start_router(*replicas, health=SLOW_HEALTH, retry={"max_attempts": 2})
    for replica in replicas:
        await replica.refuse()
    (await router.ask(chat())).refused(502, "connect_failed")
    assert (await router.metrics()).value("attempts_total") == 2


async def test_no_replica_is_tried_twice(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(2)]
    router = await start_router(*replicas, health=SLOW_HEALTH, retry={"max_attempts": 10})
    for replica in replicas:
        await replica.refuse()
    (await router.ask(chat())).refused(502, "connect_failed")
    metrics = await router.metrics()
    attempts = [metrics.value("attempts_total", replica=replica.name) for replica in replicas]
    assert max(attempts) == 1


async def test_handshake_that_takes_too_long_is_retried_elsewhere(start_router: StartRouter) -> None:
    deaf, live = FakeReplica(), FakeReplica()
    router = await start_router(
        deaf, live, policy="round-robin", health=SLOW_HEALTH, timeouts={"connect": 0.1}
    )
    await deaf.stop_answering_connects()
    for _ in range(2):
        assert (await router.ask(chat())).status == 200
    assert len(live.requests) == 2


async def test_handshake_that_takes_too_long_everywhere_is_a_502(start_router: StartRouter) -> None:
    deaf = FakeReplica()
    router = await start_router(deaf, health=SLOW_HEALTH, timeouts={"connect": 0.1})
    await deaf.stop_answering_connects()
    (await router.ask(chat())).refused(502, "connect_failed")


@pytest.mark.parametrize("stream", [True, False])
async def test_timeout_is_no_licence_to_send_again(start_router: StartRouter, stream: bool) -> None:
    replicas = [FakeReplica(silence) for _ in range(2)]
    router = await start_router(*replicas, timeouts={"response_head": 0.2})
    (await router.ask(chat(stream=stream))).refused(504, "response_head_timeout")
    (received,) = replicas[0].requests + replicas[1].requests
    await received.aborted()
    await router.settled()
    assert len(replicas[0].requests + replicas[1].requests) == 1


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "once-noticed"])
@pytest.mark.parametrize(
    "stray",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nINJECTED!",
        b"HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\nINJECTED!",
        b"INJECTED!",
        b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=["answer", "timeout-page", "garbage", "blank-line", "informational"],
)
async def test_stray_bytes_on_an_idle_connection_reach_nobody(
    start_router: StartRouter, stray: bytes, at_once: bool
) -> None:
    async def script(received: Received, connection: Connection) -> None:
        await connection.send(sized(b'"FIRST"' if b"first" in received.body else b'"SECOND"'))

    replica = FakeReplica(script)
    router = await start_router(replica)
    assert (await router.ask(chat(user="first"))).body.raw == b'"FIRST"'
    connection = replica.used_connections[0]
    await connection.send(stray)
    if not at_once:
        await connection.wire.gone()
    answer = await router.ask(chat(user="second"))
    if answer.status == 502:
        assert at_once
    else:
        assert answer.body.raw == b'"SECOND"'
    assert b"INJECTED" not in answer.head.raw + answer.body.raw
    assert (await router.ask(chat(user="third"))).body.raw == b'"SECOND"'


@pytest.mark.parametrize("how", ENDINGS)
async def test_idle_connection_that_its_replica_ends_is_replaced(
    start_router: StartRouter, how: Ending
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    for _ in range(5):
        assert (await router.ask(chat())).status == 200
        connection = replica.used_connections[-1]
        connection.wire.close() if how == "fin" else connection.wire.reset()
        await connection.wire.until(lambda: replica.used_connections[-1].wire.closed, "its end")

        async def noticed() -> bool:
            return bool((await router.ledger())["connector"]["idle"] == 0)

        await eventually(noticed, "the router forgets the connection")
    assert len(replica.used_connections) == 5


async def test_idle_connection_is_not_kept_longer_than_set(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, connector={"keepalive": 0.1})
    assert (await router.ask(chat())).status == 200
    await replica.used_connections[0].wire.gone()
    assert (await router.ask(chat())).status == 200
    assert len(replica.used_connections) == 2


async def test_retry_keeps_the_body_whole(start_router: StartRouter) -> None:
    down, live = FakeReplica(), FakeReplica()
    router = await start_router(down, live, policy="round-robin", health=SLOW_HEALTH)
    await down.refuse()
    body = chat_body(pad="é" * 200_000)
    for chunked in (False, True):
        raw = request("POST", "/v1/chat/completions?x=%2F", body, chunked=chunked)
        assert (await router.ask(raw)).status == 200
    assert [received.body for received in live.requests] == [body, body]
    assert live.requests[0].target == "/v1/chat/completions?x=%2F"


async def test_stream_that_broke_is_not_started_again(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event("1"))
        connection.wire.close()

    replicas = [FakeReplica(script) for _ in range(3)]
    router = await start_router(*replicas)
    assert (await router.ask(chat())).ended == "dirty"
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_dying_replica_takes_only_its_own_streams(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replicas = [FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)) for _ in range(2)]
    router = await start_router(*replicas)
    clients = [await router.begin(chat()) for _ in range(20)]
    for client in clients:
        await client.wire.expect(event("1"))
    dying, living = replicas
    assert len(dying.requests) == len(living.requests) == 10
    await dying.refuse()
    dying.reset_all()
    for _ in range(10):
        client = await router.begin(chat())
        await client.wire.expect(event("1"))
        clients.append(client)
    gate.set()
    endings = [(await client.answer()).ended for client in clients]
    assert endings.count("dirty") == 10
    assert len(living.requests) == 20
    assert (await router.settled()).finished == {"ok": 20, "replica_disconnected": 10}
    await dying.listen()
    await router.until_ready(2)


async def test_request_whose_body_was_let_go_is_not_sent_again(start_router: StartRouter) -> None:
    """Not even where the operator wants it: the other replica would wait for a body that never comes."""
    broken, well = FakeReplica(reply(SSE_HEAD + b"no chunk\r\n")), FakeReplica()
    router = await start_router(
        broken, well, policy="round-robin", health=SLOW_HEALTH, retry={"resend": True}
    )
    answers = [await router.ask(chat()) for _ in range(2)]
    assert sorted(answer.status for answer in answers) == [200, 502]
    assert len(well.requests) == len(well.complete) == 1
