"""The command itself: it starts, serves, says what it does, and ends without breaking what runs."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.fakes.client import chat, request
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
    stall,
)
from tests.fakes.served import Serve
from tests.fakes.wire import eventually


async def test_serve_relays_and_says_where(serve: Serve) -> None:
    replica = FakeReplica(reply(SHORT_STREAM))
    router = await serve(replica)
    answer = await router.ask(chat())
    assert answer.body.raw == SHORT_STREAM.partition(b"\r\n\r\n")[2]
    assert (await router.ledger())["finished"]["ok"] == 1
    block = router.output
    for fact in (str(router.port), str(router.admin_port), replica.name, "least-outstanding"):
        assert fact in block


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_lets_running_streams_finish(serve: Serve, number: signal.Signals) -> None:
    gate = asyncio.Event()
    router = await serve(FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)))
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    router.process.send_signal(number)

    async def draining() -> bool:
        return (await router.get("/ready")).status == 503

    await eventually(draining, "the router is not ready any more")
    assert (await router.get("/health")).status == 200

    async def refused() -> bool:
        answer = await router.ask(chat())
        if answer.status != 503:
            return False
        answer.refused(503, "draining")
        assert answer.head.get("retry-after")
        assert answer.head.get("connection") == "close"
        return True

    await eventually(refused, "new requests are refused")
    assert router.process.poll() is None
    gate.set()
    assert (await client.answer()).body.raw == event("1") + event("2") + LAST_CHUNK
    assert await router.exit_status() == 0


async def test_idle_router_ends_at_once(serve: Serve) -> None:
    router = await serve(FakeReplica())
    client = await router.connect()
    assert (await client.ask(chat())).status == 200
    router.process.terminate()
    assert await router.exit_status() == 0
    await client.gone()


async def test_second_signal_ends_at_once(serve: Serve) -> None:
    replica = FakeReplica(silence)
    router = await serve(replica)
    client = await router.begin(chat())
    await router.stage(sent=1)
    router.process.terminate()

    async def draining() -> bool:
        return (await router.get("/ready")).status == 503

    await eventually(draining, "the router is not ready any more")
    router.process.terminate()
    assert await router.exit_status() == 1
    await client.gone()
    assert client.wire.unread.startswith(b"HTTP/1.1 503")
    assert b'"code":"draining"' in client.wire.unread.replace(b" ", b"")
    await replica.requests[0].aborted()


@pytest.mark.parametrize("begun", [True, False], ids=["in-the-stream", "before-the-answer"])
async def test_time_to_finish_is_bounded(serve: Serve, tmp_path: Path, begun: bool) -> None:
    """H63: at the limit the clients that are left get a dirty end, never a whole answer, and engines stop."""
    config = tmp_path / "drain.yaml"
    config.write_text("drain: {timeout: 0.3}\n")
    replica = FakeReplica(stall(SSE_HEAD + event("1")) if begun else silence)
    router = await serve(replica, flags=("--config", str(config)))
    client = await router.begin(chat())
    await router.stage(**{"streaming" if begun else "sent": 1})
    router.process.terminate()
    await replica.requests[0].aborted()
    await client.gone()
    assert not client.wire.unread.endswith(LAST_CHUNK)
    assert b"[DONE]" not in client.wire.unread
    assert b'"code":"draining"' in client.wire.unread.replace(b" ", b"")
    if not begun:
        assert not client.wire.unread.startswith(b"HTTP/1.1 200")
    await router.exit_status()


async def test_requests_are_served_for_a_while_after_the_signal(serve: Serve, tmp_path: Path) -> None:
    """H63: until balancers have seen that the router is not ready, it serves; then it refuses."""
    config = tmp_path / "drain.yaml"
    config.write_text("drain: {delay: 1.5}\n")
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"long" in received.body:
            await gate.wait()
        await connection.send(OK)

    router = await serve(FakeReplica(script), flags=("--config", str(config)))
    long = await router.begin(chat(user="long"))
    await router.stage(sent=1)
    router.process.terminate()

    async def not_ready() -> bool:
        return (await router.get("/ready")).status == 503

    await eventually(not_ready, "the router is not ready any more")
    assert (await router.ask(chat())).status == 200

    async def refused() -> bool:
        return (await router.ask(chat())).status == 503

    await eventually(refused, "new requests are refused")
    assert (await router.get("/health")).status == 200
    gate.set()
    assert (await long.answer()).status == 200
    assert await router.exit_status() == 0


async def test_bad_input_leaves_no_traceback(serve: Serve) -> None:
    """After a tour through everything that can go wrong the log has facts, not tracebacks."""

    async def script(received: Received, connection: Connection) -> None:
        if b"reset" in received.body:
            connection.wire.reset()
        elif b"garbage" in received.body:
            await connection.send(b"garbage\r\n\r\n")
        elif b"cut" in received.body:
            await connection.send(SSE_HEAD + event("1"))
            connection.wire.close()
        elif b"error" in received.body:
            await connection.send(sized(b"{}", status="500 Broken"))
        elif b"silent" in received.body:
            await connection.wire.gone(60)
        else:
            await connection.send(OK)

    replica = FakeReplica(script)
    router = await serve(replica, flags=("--log-level", "debug"))
    for user in ("reset", "garbage", "cut", "error", "fine"):
        await router.ask(chat(user=user, headers={"X-Request-Id": f"id-of-{user}"}))
    for raw in (
        b"garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        request("POST", "/v1/chat/completions", b"{bad"),
        request("POST", "/nope", b"{}"),
        request("GET", "/v1/chat/completions"),
        request("POST", "/v1/chat/completions", b"{}", {"Content-Length": "-1"}),
        chat(model="nope"),
        chat(headers={"X-Large": "x" * 100_000}),
    ):
        assert 400 <= (await router.ask(raw)).status < 500
    for how in ("fin", "rst"):
        for raw in (chat()[:40], chat()[:-5], chat(user="silent")):
            client = await router.begin(raw)
            client.leave("fin" if how == "fin" else "rst")
    await replica.refuse()
    replica.reset_all()
    assert (await router.ask(chat())).status in {502, 503}
    await router.settled()
    router.process.terminate()
    assert await router.exit_status() == 0
    output = router.output
    assert "Traceback" not in output
    assert "never retrieved" not in output
    assert "Unclosed" not in output
    for user in ("reset", "garbage", "cut", "error", "fine"):
        assert f"id-of-{user}" in output


async def test_taken_port_is_said(serve: Serve) -> None:
    first = await serve(FakeReplica())
    flags = ("--replica", "http://127.0.0.1:9", "--port", str(first.port))
    second = await serve(flags=flags, up=False)
    assert await second.exit_status() == 1
    assert "port in use" in second.output
    assert str(first.port) in second.output
    assert "Traceback" not in second.output
    assert (await first.get("/health")).status == 200


async def test_bad_setting_is_named(serve: Serve) -> None:
    router = await serve(flags=("--replica", "http://127.0.0.1:9", "--policy", "best"), up=False)
    assert await router.exit_status() == 2
    assert "Traceback" not in router.output
    for word in ("policy", "best", "least-outstanding"):
        assert word in router.output


async def test_unreachable_replica_is_warned_of_and_served_when_it_comes(serve: Serve) -> None:
    late, live = FakeReplica(), FakeReplica()
    late.probes.health = 503
    router = await serve(late, live, flags=("--health-interval", "0.1"))
    assert f"replica {late.name} is not ready" in router.output
    assert (await router.ask(chat())).status == 200
    late.probes.health = 200
    await router.until_ready(2)
    for _ in range(4):
        assert (await router.ask(chat())).status == 200
    assert late.requests


async def test_flags_reach_the_router(serve: Serve) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await serve(replica, flags=("--connector-limit", "1", "--queue-timeout", "0.2"))
    holder = await router.begin(chat())
    await router.stage(sent=1)
    (await router.ask(chat())).refused(503, "queue_timeout")
    gate.set()
    assert (await holder.answer()).status == 200
    assert (await router.metrics()).value("connector_limit") == 1
