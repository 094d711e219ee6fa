"""What happens on a client's connection beside the request that is being served."""

import asyncio
from typing import Any

import pytest

from tests.fakes.client import chat, chat_body, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event, held, reply, sized
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually

JUNK = {
    "garbage": b"\x00\x01garbage\r\n\r\n",
    "bad-head": b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    "large-field": b"GET / HTTP/1.1\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "both-framings": b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "half-a-body": chat()[:-10],
}

STREAM = event("1") + event("2") + LAST_CHUNK


async def older_than(router: RunningRouter, age: float) -> None:
    """Wait until the oldest request has been in flight for `age` seconds."""

    async def reached() -> bool:
        rows = (await router.admin("/admin/requests")).json()["requests"]
        return bool(rows and rows[0]["age"] > age)

    await eventually(reached, f"a request is {age} s old")


def assert_one_refusal(rest: bytes) -> None:
    """Nothing, or one error of the router's own."""
    assert rest == b"" or rest.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 431"))
    assert rest.count(b"HTTP/1.1 4") <= 1


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_bytes_behind_a_running_request_do_not_harm_its_answer(
    start_router: StartRouter, junk: bytes
) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK))
    router = await start_router(replica, timeouts={"client_head": 0.1, "client_body": 0.1})
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    await client.send(junk)
    await older_than(router, 0.3)
    gate.set()
    answer = await client.answer()
    assert answer.body.raw == STREAM
    assert answer.ended == "clean"
    assert_one_refusal(await client.wire.read_to_end())
    assert len(replica.requests) == 1


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_bytes_that_come_with_a_request_are_never_part_of_it(
    start_router: StartRouter, junk: bytes
) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"client_head": 0.1, "client_body": 0.1})
    client = await router.begin(chat() + junk)
    answer = await client.answer()
    if answer.status == 200:
        assert_one_refusal(await client.wire.read_to_end())
        assert [received.body for received in replica.requests] == [chat_body()]
    else:
        # The parser may give up on all that came in one piece.
        assert answer.status in {400, 431}
        assert replica.requests == []
        await client.gone()


async def test_blank_lines_between_requests_are_skipped(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    client = await router.connect()
    for _ in range(3):
        assert (await client.ask(chat() + b"\r\n")).status == 200


async def test_nothing_is_read_after_a_request_that_closes(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.begin(chat(headers={"Connection": "close"}) + chat())
    assert (await client.answer()).status in {200, 400}
    await client.gone()
    assert client.wire.unread == b""
    assert len(replica.requests) <= 1


@pytest.mark.parametrize(
    "error",
    [
        request("POST", "/nope", b"{}"),
        request("GET", "/v1/chat/completions"),
        request("POST", "/v1/chat/completions", b"{bad"),
        chat(model="nope"),
        request("GET", "/v1/models/nope"),
        request("POST", "/health", b"xyz"),
    ],
)
async def test_connection_serves_on_after_an_error(start_router: StartRouter, error: bytes) -> None:
    router = await start_router(FakeReplica())
    client = await router.connect()
    for _ in range(3):
        assert 400 <= (await client.ask(error)).status < 500
        assert (await client.ask(chat())).status == 200
    assert client.wire.unread == b""


async def test_errors_and_answers_keep_their_order_in_a_pipeline(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(sized(b'"relayed"'))))
    requests = [
        chat(),
        request("POST", "/nope", b"{}"),
        request("GET", "/health"),
        chat(model="nope"),
        request("GET", "/v1/models"),
        chat(),
    ]
    client = await router.begin(b"".join(requests))
    statuses = [(await client.answer()).status for _ in requests]
    assert statuses == [200, 404, 200, 404, 200, 200]


async def test_stalled_reader_is_not_taken_for_a_silent_replica(start_router: StartRouter) -> None:
    """While the client takes nothing the replica is not read; its silence is then not its own."""
    body = b"x" * 30_000_000
    replica = FakeReplica(reply(sized(body)))
    router = await start_router(replica, timeouts={"idle": 0.2})
    client = await router.connect(receive_buffer=65536)
    await client.send(chat())
    head = await client.head()
    client.wire.pause()
    await eventually(lambda: replica.used_connections[0].wire.write_blocked, "the replica is blocked")
    await older_than(router, 1.0)
    client.wire.resume()
    answer = await client.body(head, deadline=20)
    assert answer.ended == "clean"
    assert answer.entity == body
    assert (await router.settled()).finished == {"ok": 1}


async def test_wait_for_a_slot_is_not_the_replicas_silence(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"holder" in received.body:
            await connection.send(SSE_HEAD + event("1"))
            await gate.wait()
            await connection.send(LAST_CHUNK)
        else:
            await connection.send(OK)

    router = await start_router(
        FakeReplica(script), connector={"limit": 1}, timeouts={"response_head": 0.2, "connect": 0.2}
    )
    holder = await router.begin(chat(user="holder"))
    await holder.wire.expect(event("1"))
    second = await router.begin(chat())
    await older_than(router, 0.6)
    gate.set()
    assert (await holder.answer()).ended == "clean"
    assert (await second.answer()).status == 200


@pytest.mark.parametrize("where", ["connector", "admission"])
async def test_total_limit_covers_every_wait(start_router: StartRouter, where: str) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    limits = {"connector": {"limit": 1}, "admission": {"max_outstanding_per_replica": 1}}
    options: dict[str, Any] = {where: limits[where], "timeouts": {"total": 0.3}}
    router = await start_router(replica, **options)
    for answer in await router.ask_each([chat()] * 3):
        if answer.status == 200:
            assert answer.ended == "dirty"
        else:
            answer.refused(504, "total_timeout")
    assert (await router.settled()).finished == {"total_timeout": 3}
    gate.set()
    assert (await router.ask(chat())).ended == "clean"


async def test_replica_that_says_close_is_closed_by_the_router(start_router: StartRouter) -> None:
    replica = FakeReplica(reply(sized(b"{}", headers="Connection: close\r\n")))
    router = await start_router(replica)
    assert (await router.ask(chat())).status == 200
    await replica.requests[0].aborted()


@pytest.mark.parametrize("length", [b"9" * 30, b"18446744073709551616", b"9223372036854775807"])
async def test_absurd_length_is_no_answer(start_router: StartRouter, length: bytes) -> None:
    replica = FakeReplica(reply(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\nx", then="fin"))
    router = await start_router(replica)
    answer = await router.ask(chat())
    if answer.status == 200:
        assert answer.ended == "dirty"
    else:
        answer.refused(502, "bad_replica_response")
    assert "ok" not in (await router.settled()).finished


@pytest.mark.parametrize("size", [8_000, 60_000])
async def test_long_query_passes(start_router: StartRouter, size: int) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    target = "/v1/completions?" + "q" * size
    assert (await router.ask(request("POST", target, b"{}"))).status == 200
    assert replica.requests[0].target == target


async def test_overlong_query_is_refused(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.begin(request("POST", "/v1/completions?" + "q" * 200_000, b"{}"))
    answer = await client.answer()
    assert answer.status in {400, 414, 431}
    answer.refused(answer.status, answer.json()["error"]["code"])
    await client.gone()
    assert replica.requests == []


async def test_answers_to_many_at_once_are_not_mixed_up(start_router: StartRouter) -> None:
    async def echo(received: Received, connection: Connection) -> None:
        await connection.send(sized(received.body))

    replicas = [FakeReplica(echo) for _ in range(3)]
    router = await start_router(*replicas)
    requests = [chat(user=f"user {number}") for number in range(300)]
    for raw, answer in zip(requests, await router.ask_each(requests), strict=True):
        assert answer.body.raw == raw.partition(b"\r\n\r\n")[2]
    assert (await router.settled()).finished == {"ok": 300}


async def test_proxies_of_the_environment_are_never_asked(
    start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither requests nor probes nor scrapes may leave by a way that nobody configured here."""
    async with FakeReplica() as elsewhere:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{elsewhere.name}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        replica = FakeReplica()
        router = await start_router(replica, scrape={"interval": 0.05})
        assert (await router.ask(chat())).status == 200
        targets = {"/health", "/v1/models", "/metrics"}
        await eventually(
            lambda: targets <= {one.target for one in replica.probed}, "it is probed and scraped"
        )
        assert elsewhere.connections == []
