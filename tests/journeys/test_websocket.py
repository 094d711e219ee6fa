"""WebSocket sessions through the whole router: raw bytes at both ends, and real libraries at both ends."""

import asyncio
import os
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.fakes.certificates import Authority
from tests.fakes.client import Client, chat, request
from tests.fakes.replica import FOR_EVER, OK, Connection, FakeReplica, reply, silence, sized
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.served import Serve
from tests.fakes.websocket import (
    BINARY,
    HANDSHAKE,
    PING,
    SWITCHING,
    TARGET,
    TEXT,
    WebSocketReplica,
    close_frame,
    echo,
    echo_messages,
    frame,
    handshake,
    session,
)
from tests.fakes.wire import Ending, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
PROMPT = 5.0
"""Seconds; five times what an end may take to reach the other side."""

FORBIDDEN = sized(b'{"error":"not you"}', status="403 Forbidden", headers="X-Why: because\r\n")


async def begin(router: RunningRouter, raw: bytes = handshake(), **options: Any) -> Client:
    """A client whose session has begun."""
    client = await router.connect(**options)
    await client.send(raw)
    assert (await client.head()).status == 101
    return client


async def ended(router: RunningRouter, outcome: str, replica: FakeReplica | None = None) -> None:
    """Assert that the only session has ended in this way, everywhere where ends are counted."""
    ledger = await router.settled()
    assert ledger.finished == {outcome: 1}
    metrics = await router.metrics()
    assert metrics.value("requests_total", endpoint="/v1/realtime", model="m1", outcome=outcome) == 1
    assert metrics.value("requests_received_total", endpoint="/v1/realtime") == 1
    assert metrics.value("attempts_total", result=outcome) == 1
    gone = metrics.value("client_gone_total", stage="streaming")
    assert gone == (1 if outcome == "client_gone" else 0)
    if replica is not None:
        assert ledger.replica(replica)["outstanding"] == 0


# The handshake


async def test_handshake_crosses_with_all_that_belongs_to_it(start_router: StartRouter) -> None:
    """H52."""
    replica = FakeReplica(session(echo), base_path="/engine")
    router = await start_router(replica)
    target = "/v1/realtime?model=m1&intent=transcription&x=%2F+a"
    own = {"Authorization": "Bearer key", "Sec-WebSocket-Extensions": "permessage-deflate", "X-Odd": "1"}
    client = await router.connect()
    await client.send(handshake(target, own))
    head = await client.head()
    assert head.start == "HTTP/1.1 101 Switching Protocols"
    assert (head.get("upgrade"), head.get("connection")) == ("websocket", "Upgrade")
    assert head.get("sec-websocket-protocol") == "realtime"
    assert head.get("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert head.framing == []
    (received,) = await replica.received()
    assert received.target == f"/engine{target}"
    assert received.head.get("host") == f"127.0.0.1:{replica.port}"
    for name, value in {**HANDSHAKE, **own}.items():
        assert received.head.get(name) == value
    assert received.head.framing == []
    assert received.head.get("x-request-id") == head.get("x-request-id")


async def test_handshake_has_receipts(start_router: StartRouter) -> None:
    replica = FakeReplica(session())
    router = await start_router(replica)
    client = await router.connect()
    await client.send(handshake(headers={"X-Request-Id": "mine"}))
    head = await client.head()
    assert head.get("x-request-id") == "mine"
    assert head.get("x-replicarouter-replica") == replica.name
    assert "queue;dur=" in (head.get("server-timing") or "")


async def test_frames_pass_both_ways_intact_and_in_order(start_router: StartRouter) -> None:
    """H52."""

    async def talk(connection: Connection) -> None:
        await connection.send(frame(b"hi", PING))
        await echo(connection)

    replica = FakeReplica(session(talk))
    router = await start_router(replica)
    client = await begin(router)
    assert await client.wire.read_exactly(4) == frame(b"hi", PING)
    frames = [
        frame(os.urandom(size), BINARY, masked=True) for size in (0, 1, 125, 126, 65535, 65536, 300_000)
    ]
    frames += [frame("é🌍".encode(), TEXT, masked=True, final=False), frame(b"!", 0, masked=True)]
    said = b"".join(frames)
    await client.send(said)
    assert await client.wire.read_exactly(len(said)) == said
    ledger = await router.stage(streaming=1)
    assert ledger.replica(replica)["outstanding"] == 1
    assert (await router.metrics()).value("requests_outstanding", stage="streaming") == 1
    (row,) = (await router.admin("/admin/requests")).json()["requests"]
    assert row["stage"] == "streaming"


async def test_bytes_that_come_with_the_heads_are_part_of_the_session(start_router: StartRouter) -> None:
    """A client may not, but does, speak before the 101; nothing of it may be taken for a request."""
    early = frame(b"early", masked=True) + request("GET", "/health")
    replica = FakeReplica(session(echo, SWITCHING + frame(b"welcome")))
    router = await start_router(replica)
    client = await begin(router, handshake() + early)
    expected = frame(b"welcome") + early
    assert await client.wire.read_exactly(len(expected)) == expected


# Ends


@pytest.mark.parametrize("how", [*ENDINGS, "half"])
async def test_client_that_vanishes_ends_the_session_at_its_replica(
    start_router: StartRouter, how: Any
) -> None:
    """H52 (a)."""
    replica = FakeReplica(session(echo))
    router = await start_router(replica)
    client = await begin(router)
    await router.stage(streaming=1)
    if how == "half":
        client.wire.half_close()
    else:
        client.leave(how)
    await replica.requests[0].aborted(PROMPT)
    await ended(router, "client_gone", replica)


async def test_client_that_closes_in_order_is_a_success(start_router: StartRouter) -> None:
    """H52 (a)."""
    replica = FakeReplica(session())
    router = await start_router(replica)
    client = await begin(router)
    await client.send(close_frame(masked=True))
    client.leave()
    await replica.requests[0].aborted(PROMPT)
    assert replica.used_connections[0].wire.unread == close_frame(masked=True)
    await ended(router, "ok", replica)


async def test_replica_that_closes_in_order_is_a_success(start_router: StartRouter) -> None:
    """H52 (b)."""
    last = frame(b"x" * 200_000) + close_frame(1000, b"done")

    async def talk(connection: Connection) -> None:
        await connection.send(last)
        connection.wire.close()

    replica = FakeReplica(session(talk))
    router = await start_router(replica)
    client = await begin(router)
    assert await client.wire.read_to_end(PROMPT) == last
    assert client.wire.ending == "fin"
    client.leave()
    await ended(router, "ok", replica)


@pytest.mark.parametrize("how", ENDINGS)
async def test_replica_that_dies_ends_the_session_and_is_to_blame(
    start_router: StartRouter, how: Ending
) -> None:
    """H52 (c)."""
    dies = asyncio.Event()

    async def talk(connection: Connection) -> None:
        await connection.send(frame(b"so far"))
        await dies.wait()
        if how == "fin":
            connection.wire.close()
        else:
            connection.wire.reset()

    replica = FakeReplica(session(talk))
    router = await start_router(replica)
    client = await begin(router)
    await client.wire.expect(frame(b"so far"))
    dies.set()
    assert await client.wire.read_to_end(PROMPT) == frame(b"so far")
    client.leave()
    await ended(router, "replica_disconnected", replica)


async def test_session_that_has_begun_never_moves_to_another_replica(start_router: StartRouter) -> None:
    async def die(connection: Connection) -> None:
        connection.wire.reset()

    replicas = FakeReplica(session(die)), FakeReplica(session(die))
    router = await start_router(*replicas, retry={"resend": True})
    client = await begin(router)
    await client.gone(PROMPT)
    assert (await router.settled()).finished == {"replica_disconnected": 1}
    assert sum(len(replica.requests) for replica in replicas) == 1


@pytest.mark.parametrize("early", [b"", frame(b"early", masked=True), request("GET", "/health")])
async def test_refusal_passes_as_an_answer(start_router: StartRouter, early: bytes) -> None:
    """H52 (d). What follows a refused handshake may be no HTTP, so the connection ends there."""
    replica = FakeReplica(reply(FORBIDDEN))
    router = await start_router(replica)
    client = await router.connect()
    answer = await client.ask(handshake() + early)
    assert (answer.status, answer.body.entity) == (403, b'{"error":"not you"}')
    assert answer.head.get("x-why") == "because"
    assert answer.head.get("connection") == "close"
    assert "upgrade" not in answer.head.names
    await client.gone()
    assert client.wire.unread == b""
    assert (await router.settled()).finished == {"upstream_error": 1}


async def test_session_that_no_longer_exists_costs_nothing(start_router: StartRouter) -> None:
    replica = FakeReplica(session(echo))
    router = await start_router(replica)
    for _ in range(20):
        client = await begin(router)
        await client.send(close_frame(masked=True))
        client.leave()
    await router.settled()
    await eventually(lambda: all(one.gone for one in replica.requests), "all are closed at the replica")
    metrics = await router.metrics()
    assert metrics.value("connector_connections", replica=replica.name) == 0


# Leaving before it has begun


async def wait_in_queue(router: RunningRouter, replica: FakeReplica) -> None:
    await router.begin(chat())
    await router.stage(sent=1)


@pytest.mark.parametrize("how", [*ENDINGS, "half"])
@pytest.mark.parametrize("stage", ["queued", "connecting", "sent"])
async def test_client_that_leaves_before_the_session_begins_aborts(
    start_router: StartRouter, stage: str, how: Any
) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica, admission={"max_outstanding_per_replica": 1})
    occupant: Client | None = None
    if stage == "queued":
        occupant = await router.begin(chat())
        await router.stage(sent=1)
    elif stage == "connecting":
        await replica.stop_answering_connects()
    client = await router.begin(handshake())
    await router.stage(**({stage: 1} if occupant is None else {stage: 1, "sent": 1}))
    if how == "half":
        client.wire.half_close()
    else:
        client.leave(how)
    if stage == "sent":
        await replica.requests[0].aborted(PROMPT)
    if occupant is None:
        await router.settled()
    else:
        await router.stage(sent=1)
    metrics = await router.metrics()
    assert metrics.value("client_gone_total", stage=stage) == 1
    assert len(replica.requests) == (0 if stage == "connecting" else 1)


# Which replica


async def test_query_names_the_model(start_router: StartRouter) -> None:
    one, other = FakeReplica(session(echo)), FakeReplica(session(echo))
    other.probes.models = ["org/m 2"]
    router = await start_router(one, other)
    await begin(router, handshake("/v1/realtime?model=org%2Fm+2"))
    await begin(router, handshake("/v1/realtime?a=1&model=m1"))
    assert [received.target for received in one.requests] == ["/v1/realtime?a=1&model=m1"]
    assert [received.target for received in other.requests] == ["/v1/realtime?model=org%2Fm+2"]
    for target, status, code in (
        ("/v1/realtime", 400, "invalid_request"),
        ("/v1/realtime?model=m1&model=m2", 400, "invalid_request"),
        ("/v1/realtime?model=nope", 404, "model_not_found"),
    ):
        (await router.ask(handshake(target))).refused(status, code)


async def test_session_without_a_model_goes_to_the_only_pool(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(session(echo)))
    await begin(router, handshake("/v1/realtime"))


async def test_refused_connection_is_retried_elsewhere(start_router: StartRouter) -> None:
    dead, alive = FakeReplica(session(echo)), FakeReplica(session(echo))
    router = await start_router(dead, alive, policy="round-robin")
    await dead.refuse()
    said = frame(b"early", masked=True)
    for _ in range(2):
        client = await begin(router, handshake() + said)
        assert await client.wire.read_exactly(len(said)) == said
    assert dead.requests == []
    assert len(alive.requests) == 2


async def test_busy_replica_is_passed_over(start_router: StartRouter) -> None:
    busy = FakeReplica(reply(sized(b'{"error":"busy"}', status="503 Busy")))
    free = FakeReplica(session(echo))
    router = await start_router(busy, free, policy="round-robin")
    for _ in range(2):
        await begin(router)
    assert len(free.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        SWITCHING.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
        SWITCHING.replace(b"Upgrade: websocket\r\n", b""),
        SWITCHING.replace(b"HTTP/1.1", b"HTTP/9"),
    ],
)
async def test_switch_to_something_else_is_a_bad_answer(start_router: StartRouter, answer: bytes) -> None:
    replica = FakeReplica(session(echo, answer))
    router = await start_router(replica)
    (await router.ask(handshake())).refused(502, "bad_replica_response")
    await replica.requests[0].aborted(PROMPT)


# What is no session


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", TARGET),
        request("GET", TARGET, headers={"Connection": "Upgrade"}),
        request("GET", TARGET, headers={"Upgrade": "websocket"}),
        handshake(headers={"Upgrade": "h2c"}),
    ],
)
async def test_plain_request_is_told_to_upgrade(start_router: StartRouter, raw: bytes) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(raw)
        answer.refused(426, "upgrade_required")
        assert answer.head.get("upgrade") == "websocket"
        assert "Upgrade" in answer.head.all("connection")
    assert replica.requests == []


async def test_old_client_cannot_upgrade(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    answer = await client.ask(handshake().replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer.refused(426, "upgrade_required")
    await client.gone()
    assert replica.requests == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_only_a_get_can_upgrade(start_router: StartRouter, method: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(handshake(method=method, headers={"Content-Length": "0"}))
    answer.refused(405, "method_not_allowed")
    assert answer.head.get("allow") == "GET"
    assert replica.requests == []


async def test_body_is_refused(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(handshake(headers={"Content-Length": "2"}) + b"{}")
    answer.refused(400, "invalid_request")
    assert replica.requests == []


async def test_upgrade_on_another_path_is_ignored(start_router: StartRouter) -> None:
    replica = FakeReplica(reply(OK))
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(chat(headers=HANDSHAKE))
        assert answer.status == 200
    for received in replica.requests:
        assert received.head.get("upgrade") is None
        assert received.head.get("connection") is None


# Limits


async def test_silent_session_ends(start_router: StartRouter) -> None:
    replica = FakeReplica(session(echo))
    router = await start_router(replica, timeouts={"idle": 0.3})
    client = await begin(router)
    await client.gone(PROMPT)
    await replica.requests[0].aborted(PROMPT)
    client.leave()
    await ended(router, "idle_timeout", replica)


async def test_session_cannot_outlast_the_total_time(start_router: StartRouter) -> None:
    replica = FakeReplica(session(echo))
    router = await start_router(replica, timeouts={"total": 0.3})
    client = await begin(router)
    await client.gone(PROMPT)
    await replica.requests[0].aborted(PROMPT)
    client.leave()
    await ended(router, "total_timeout", replica)


async def test_operator_can_end_a_session(start_router: StartRouter) -> None:
    replica = FakeReplica(session(echo))
    router = await start_router(replica)
    client = await begin(router)
    (row,) = (await router.admin("/admin/requests")).json()["requests"]
    assert (await router.admin(f"/admin/requests/{row['id']}/cancel", method="POST")).status == 202
    await client.gone(PROMPT)
    await replica.requests[0].aborted(PROMPT)
    client.leave()
    await ended(router, "cancelled", replica)


async def test_drain_waits_for_a_session(serve: Serve) -> None:
    router = await serve(FakeReplica(session(echo)))
    client = await begin(router)  # type: ignore[arg-type]
    router.process.terminate()

    async def draining() -> bool:
        return (await router.get("/ready")).status == 503

    await eventually(draining, "the router is not ready any more")
    (await router.ask(handshake())).refused(503, "draining")
    said = frame(b"still here", masked=True)
    await client.send(said)
    assert await client.wire.read_exactly(len(said)) == said
    assert router.process.poll() is None
    await client.send(close_frame(masked=True))
    client.leave()
    assert await router.exit_status() == 0


async def test_slow_reader_on_either_side_holds_the_other(start_router: StartRouter) -> None:
    """What the two kernels and the router hold of 200 MB must be a small part of it."""
    most = 30_000_000
    replica = FakeReplica()

    async def talk(connection: Connection) -> None:
        connection.wire.pause()
        for _ in range(200):
            await connection.send(bytes(1_000_000))

    replica.script = session(talk)
    router = await start_router(replica)
    client = await begin(router, receive_buffer=65536)
    client.wire.pause()
    for _ in range(200):
        client.wire.transport.write(bytes(1_000_000))
    wire = replica.used_connections[0].wire
    await eventually(lambda: wire.write_blocked and client.wire.write_blocked, "both sides are held")
    await asyncio.sleep(0.3)
    assert wire.count_written < most
    assert client.wire.transport.get_write_buffer_size() > 200_000_000 - most


# Over TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def secure_session(
    start_router: StartRouter, authority: Authority
) -> tuple[RunningRouter, Client, FakeReplica]:
    """A session over TLS on both sides, whose replica sends everything back and ends behind a Close frame."""

    async def talk(connection: Connection) -> None:
        wire = connection.wire
        while not wire.unread.endswith(close_frame(masked=True)) and not wire.over:
            await wire.until(lambda: bool(wire.unread) or wire.over, "bytes", FOR_EVER)
            said = bytes(wire.unread)
            wire.unread.clear()
            await connection.send(said)
            if said.endswith(close_frame(masked=True)):
                await connection.send(close_frame())
                wire.close()
                return

    replica = FakeReplica(session(talk), tls=authority.issue("replica").server())
    tls = {**authority.issue("router").settings, "replica_ca": str(authority.cert)}
    router = await start_router(replica, tls=tls)
    return router, await begin(router, handshake() + frame(b"early", masked=True)), replica


async def test_session_over_tls_is_the_same(
    secure_session: tuple[RunningRouter, Client, FakeReplica],
) -> None:
    router, client, replica = secure_session
    said = frame(os.urandom(3_000_000), BINARY, masked=True) + close_frame(masked=True)
    sending = asyncio.ensure_future(client.send(said))
    expected = frame(b"early", masked=True) + said + close_frame()
    assert await client.wire.read_exactly(len(expected)) == expected
    await sending
    assert await client.gone(PROMPT) == "fin"
    client.leave()
    await ended(router, "ok", replica)


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_vanishes_ends_a_session_over_tls(
    secure_session: tuple[RunningRouter, Client, FakeReplica], how: Ending
) -> None:
    router, client, replica = secure_session
    await client.wire.expect(frame(b"early", masked=True))
    client.leave(how)
    await replica.requests[0].aborted(PROMPT)
    await ended(router, "client_gone", replica)


# Real libraries at both ends


async def connected(router: RunningRouter, http: aiohttp.ClientSession, **options: Any) -> Any:
    url = f"http://127.0.0.1:{router.port}{TARGET}"
    return await http.ws_connect(url, protocols=("realtime", "x"), max_msg_size=0, **options)


@pytest.mark.parametrize("compress", [0, 15])
async def test_real_session_of_many_kinds_of_messages(start_router: StartRouter, compress: int) -> None:
    """H52."""
    large = os.urandom(10_000_000)
    async with WebSocketReplica(echo_messages, protocols=("realtime",)) as replica:
        router = await start_router(replica.url, ready=1)
        async with aiohttp.ClientSession() as http:
            socket = await connected(router, http, compress=compress, headers={"Authorization": "Bearer key"})
            assert socket.protocol == "realtime"
            assert bool(socket.compress) == bool(compress)
            for text in ("hello", "é🌍" * 20_000, ""):
                await socket.send_str(text)
                assert (await socket.receive(PROMPT)).data == text
            await socket.send_bytes(large)
            assert (await socket.receive(30.0)).data == large
            await socket.ping(b"are you there")
            await socket.send_str("after the ping")
            assert (await socket.receive(PROMPT)).data == "after the ping"
            await socket.close(code=4001, message=b"bye")
        await ended(router, "ok")
        assert replica.seen[0].headers["Authorization"] == "Bearer key"


async def test_real_replica_says_why_it_closes(start_router: StartRouter) -> None:
    async def leave(socket: web.WebSocketResponse) -> None:
        await socket.send_str("last words")
        await socket.close(code=4002, message=b"enough")

    async with WebSocketReplica(leave) as replica:
        router = await start_router(replica.url, ready=1)
        async with aiohttp.ClientSession() as http:
            socket = await connected(router, http)
            assert (await socket.receive(PROMPT)).data == "last words"
            message = await socket.receive(PROMPT)
            assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 4002, "enough")
        await ended(router, "ok")


async def test_real_client_is_told_of_a_refusal(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(FORBIDDEN)))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connected(router, http)
    assert refused.value.status == 403


async def test_hundreds_of_sessions_at_once(start_router: StartRouter) -> None:
    count = 300

    async def one(http: aiohttp.ClientSession, number: int) -> None:
        socket = await connected(router, http)
        for turn in range(5):
            await socket.send_str(f"{number}-{turn}")
            assert (await socket.receive(30.0)).data == f"{number}-{turn}"
        await socket.close()

    async with WebSocketReplica(echo_messages) as replica:
        router = await start_router(replica.url, ready=1)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await asyncio.gather(*(one(http, number) for number in range(count)))
        ledger = await router.settled()
    assert ledger.finished == {"ok": count}
