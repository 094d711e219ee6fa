"""Limits of time on both sides: each has its own name, and none of them hits what is only slow."""

import asyncio

import pytest

from tests.fakes.client import Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    reply,
    silence,
    stall,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import PeerGone, eventually


async def refused_or_closed(client: Client) -> None:
    """Assert 408, or an end without a word."""
    try:
        answer = await client.answer()
    except PeerGone as gone:
        assert gone.got == b""  # noqa: PT017 - either end is right
        return
    answer.refused(408, "request_timeout")
    await client.gone()


UNFINISHED = {
    "half-a-line": b"POST /v1/chat/compl",
    "half-a-head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nX-A: ",
    "no-blank-line": b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n",
}


@pytest.mark.parametrize("raw", UNFINISHED.values(), ids=UNFINISHED)
async def test_unfinished_head_is_ended_in_time(start_router: StartRouter, raw: bytes) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"client_head": 0.2})
    client = await router.begin(raw)
    await refused_or_closed(client)
    assert replica.requests == []
    assert (await router.ask(chat())).status == 200


async def test_silent_connection_is_ended_in_time(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), timeouts={"client_head": 0.2})
    client = await router.connect()
    await refused_or_closed(client)


async def test_trickling_head_is_ended_in_time(start_router: StartRouter) -> None:
    """Each byte comes soon after the one before; the head as a whole takes too long."""
    router = await start_router(FakeReplica(), timeouts={"client_head": 0.2})
    client = await router.begin(b"POST /v1/chat/completions HTTP/1.1\r\nX-A: ")
    try:
        while not client.wire.over and not client.wire.unread:
            await client.send(b"a")
            await asyncio.sleep(0.02)
    except PeerGone:
        return
    await refused_or_closed(client)


async def test_head_limit_holds_for_every_request_of_a_connection(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), timeouts={"client_head": 0.2})
    client = await router.connect()
    for _ in range(3):
        assert (await client.ask(chat())).status == 200
    await client.send(b"POST /v1")
    await refused_or_closed(client)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_gap_in_a_body_is_a_408(start_router: StartRouter, framing: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"client_body": 0.2})
    raw = request("POST", "/v1/completions", b'{"model":"m1"}', chunked=framing == "chunked")
    client = await router.begin(raw[:-8])
    (await client.answer()).refused(408, "request_timeout")
    await client.gone()
    assert replica.requests == []
    assert (await router.settled()).finished == {"request_timeout": 1}


async def test_many_unfinished_requests_do_not_disturb_traffic(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"client_head": 0.3, "client_body": 0.3})
    starts = (
        b"",
        b"POST /v1/x HTTP/1.1\r\nHost: r\r\nX-A: ",
        chat()[:-40],
    )
    slow = [await router.connect() for _ in range(90)]
    for number, client in enumerate(slow):
        if raw := starts[number % 3]:
            await client.send(raw)
    answers = await router.ask_each([chat()] * 50)
    assert [answer.status for answer in answers] == [200] * 50
    for client in slow:
        await refused_or_closed(client)
    assert len(replica.requests) == 50


async def test_idle_client_connection_is_ended_in_time(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), timeouts={"client_keepalive": 0.2})
    client = await router.connect()
    assert (await client.ask(chat())).status == 200
    assert await client.gone() == "fin"
    assert client.wire.unread == b""


async def test_client_limits_do_not_hit_a_long_answer(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event("1"))
        await gate.wait()
        await connection.send(event("2") + LAST_CHUNK)

    router = await start_router(
        FakeReplica(script),
        timeouts={"client_head": 0.05, "client_body": 0.05, "client_write": 0.05, "client_keepalive": 0.05},
    )
    client = await router.begin(chat())
    await client.wire.expect(event("1"))

    async def older_than_all_limits() -> bool:
        (row,) = (await router.admin("/admin/requests")).json()["requests"]
        return bool(row["age"] > 0.3)

    await eventually(older_than_all_limits, "the stream is old")
    gate.set()
    answer = await client.answer()
    assert answer.body.raw == event("1") + event("2") + LAST_CHUNK


async def ended_by(router: RunningRouter, replica: FakeReplica, outcome: str) -> None:
    await replica.requests[0].aborted()
    assert (await router.settled()).finished == {outcome: 1}


async def test_silence_inside_a_stream_ends_it(start_router: StartRouter) -> None:
    replica = FakeReplica(stall(SSE_HEAD + event("1")))
    router = await start_router(replica, timeouts={"idle": 0.2})
    answer = await router.ask(chat())
    assert answer.status == 200
    assert answer.ended == "dirty"
    assert answer.body.chunks[0] == b"data: 1\n\n"
    (ending,) = answer.body.chunks[1:]
    assert b'"code":"idle_timeout"' in ending.replace(b" ", b"")
    await ended_by(router, replica, "idle_timeout")


async def test_stream_that_only_pauses_is_not_ended(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(8):
            # In all longer than the limit, each gap well below it.
            await asyncio.sleep(0.1)
            await connection.send(event(str(number)))
        await connection.send(LAST_CHUNK)

    router = await start_router(FakeReplica(script), timeouts={"idle": 0.6, "response_head": 0.6})
    answer = await router.ask(chat())
    assert answer.ended == "clean"
    assert len(answer.body.chunks) == 8


async def test_idle_limit_does_not_count_the_wait_for_the_head(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await gate.wait()
        await connection.send(OK)

    router = await start_router(FakeReplica(script), timeouts={"idle": 0.05})
    client = await router.begin(chat())

    async def older_than_the_limit() -> bool:
        (row,) = (await router.admin("/admin/requests")).json()["requests"] or [{"age": 0}]
        return bool(row["age"] > 0.2)

    await eventually(older_than_the_limit, "the request is old")
    gate.set()
    assert (await client.answer()).status == 200


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-"], ids=["nothing", "half-a-head"])
async def test_head_that_does_not_come_is_a_504(start_router: StartRouter, begun: bytes) -> None:
    replica = FakeReplica(stall(begun) if begun else silence)
    router = await start_router(replica, timeouts={"response_head": 0.2})
    (await router.ask(chat())).refused(504, "response_head_timeout")
    await ended_by(router, replica, "response_head_timeout")


async def test_request_that_takes_too_long_before_its_answer_is_a_504(start_router: StartRouter) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica, timeouts={"total": 0.2})
    (await router.ask(chat())).refused(504, "total_timeout")
    await ended_by(router, replica, "total_timeout")


async def test_stream_that_takes_too_long_is_ended(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(event("tick"))
            await asyncio.sleep(0.01)

    replica = FakeReplica(script)
    router = await start_router(replica, timeouts={"total": 0.2})
    answer = await router.ask(chat())
    assert answer.status == 200
    assert answer.ended == "dirty"
    assert b"[DONE]" not in answer.body.raw
    await ended_by(router, replica, "total_timeout")


async def test_total_limit_covers_the_upload(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"total": 0.2})
    client = await router.begin(chat()[:-10])
    (await client.answer()).refused(504, "total_timeout")
    assert replica.requests == []


async def test_limits_of_one_request_do_not_reach_the_next(start_router: StartRouter) -> None:
    """A timer that outlives its request must not end the one that uses the connection now."""
    slow = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"slow" in received.body:
            await slow.wait()
        await connection.send(OK)

    router = await start_router(
        FakeReplica(script), timeouts={"response_head": 0.5, "total": 0.5, "idle": 0.5}
    )
    client = await router.connect()
    for _ in range(20):
        assert (await client.ask(chat())).status == 200
        await asyncio.sleep(0.02)
    await client.send(chat(user="slow"))
    await router.stage(sent=1)
    slow.set()
    assert (await client.answer()).status == 200


async def test_long_requests_are_allowed_by_default(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(OK)))
    assert (await router.ask(chat())).status == 200
    config = router.settings["timeouts"]
    assert (config["response_head"], config["idle"], config["total"]) == (0, 0, 0)
