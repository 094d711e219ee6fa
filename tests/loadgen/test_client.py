"""One user's connection, against a server that sends exactly the bytes it is told to."""

import asyncio
import json
import time

import pytest

from replicarouter.loadgen.client import Client
from replicarouter.loadgen.report import Tally
from tests.fakes.client import HOST, chat
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, Script, event, held, reply, sized
from tests.fakes.wire import eventually
from tests.loadgen.conftest import MakeUser, Serve


def delta(**fields: str) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": fields}]}, separators=(",", ":"))


ROLE = event(delta(role="assistant", content=""))
DONE = event("[DONE]") + LAST_CHUNK
STREAM = SSE_HEAD + ROLE + event(delta(content="one")) + event(delta(content="two")) + DONE


async def test_stream_is_counted_and_timed(serve: Serve, user: MakeUser, tally: Tally) -> None:
    replica = await serve(reply(STREAM))
    answer = await user(replica.port).ask(chat())
    assert (answer.status, answer.failure, answer.events) == (200, None, 4)
    assert answer.ttft is not None
    assert 0 < answer.ttft <= answer.seconds
    assert (tally.started, tally.answered, tally.in_flight, tally.events) == (1, 1, 0, 4)
    assert list(tally.ttfts) == [answer.ttft]


async def test_answer_has_its_head_and_where_wanted_its_body(serve: Serve, tally: Tally) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(STREAM, 7)

    replica = await serve(script)
    head, body = STREAM.split(b"\r\n\r\n", 1)
    for keep in (False, True):
        one = Client(HOST, replica.port, tally=tally, clock=time.perf_counter, keep=keep)
        for _ in range(2):
            answer = await one.ask(chat())
            assert answer.head == head
            assert answer.body == (body if keep else b"")
        one.close()


async def test_connection_carries_one_request_after_the_other(
    serve: Serve, user: MakeUser, tally: Tally
) -> None:
    replica = await serve(reply(STREAM))
    one = user(replica.port)
    for _ in range(3):
        assert (await one.ask(chat())).failure is None
    assert len(replica.connections) == 1
    assert (tally.answered, tally.events) == (3, 12)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_events_are_counted_however_the_bytes_are_cut(serve: Serve, user: MakeUser, size: int) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(STREAM, size)

    replica = await serve(script)
    answer = await user(replica.port).ask(chat())
    assert (answer.failure, answer.events) == (None, 4)
    assert answer.ttft is not None


async def test_ttft_waits_for_content_and_not_for_the_role(
    serve: Serve, user: MakeUser, tally: Tally
) -> None:
    gate = asyncio.Event()
    replica = await serve(held(SSE_HEAD + ROLE, gate, event(delta(content="x")) + DONE))
    asking = asyncio.gather(user(replica.port).ask(chat()))
    await eventually(lambda: tally.events, "the role has come")
    assert not tally.ttfts
    gate.set()
    (answer,) = await asking
    assert [answer.ttft] == list(tally.ttfts)


async def test_reasoning_counts_as_content(serve: Serve, user: MakeUser) -> None:
    replica = await serve(reply(SSE_HEAD + ROLE + event(delta(reasoning="hm")) + DONE))
    assert (await user(replica.port).ask(chat())).ttft is not None


async def test_gaps_begin_with_the_first_content(serve: Serve, user: MakeUser, tally: Tally) -> None:
    gates = [asyncio.Event() for _ in range(2)]
    pieces = [SSE_HEAD + ROLE, event(delta(content="a")), event(delta(content="b")) + DONE]

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(pieces[0])
        for gate, piece in zip(gates, pieces[1:], strict=True):
            await gate.wait()
            await connection.send(piece)

    replica = await serve(script)
    asking = asyncio.gather(user(replica.port).ask(chat()))
    await eventually(lambda: tally.events == 1, "the role has come")
    gates[0].set()
    await eventually(lambda: tally.events == 2, "the first content has come")
    assert tally.gaps.count == 0
    gates[1].set()
    await asking
    assert tally.gaps.count == 1


FAILURES: dict[str, Script] = {
    "status 503": reply(sized(b'{"error":{}}', status="503 Service Unavailable")),
    "connection lost": reply(SSE_HEAD + ROLE, then="fin"),
    "stream without its end": reply(SSE_HEAD + ROLE + LAST_CHUNK),
    "error event": reply(SSE_HEAD + ROLE + event('{"error":{"message":"out of memory"}}') + DONE),
    "malformed answer": reply(SSE_HEAD + b"no size\r\n"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_failure_is_told_and_counted(serve: Serve, user: MakeUser, tally: Tally, failure: str) -> None:
    replica = await serve(FAILURES[failure])
    answer = await user(replica.port).ask(chat())
    assert answer.failure == failure
    assert tally.failures == {failure: 1}
    assert (tally.answered, tally.in_flight) == (0, 0)


async def test_malformed_head_is_a_failure(serve: Serve, user: MakeUser) -> None:
    replica = await serve(reply(b"HTTP/9.9 what\r\n\r\n"))
    assert (await user(replica.port).ask(chat())).failure == "malformed answer"


async def test_reset_in_a_body_that_ends_with_its_connection_is_a_failure(
    serve: Serve, user: MakeUser, tally: Tally
) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n")
        await eventually(lambda: tally.events, "the event has come")
        connection.wire.reset()

    replica = await serve(script)
    assert (await user(replica.port).ask(chat())).failure == "connection lost"


async def test_body_that_ends_with_its_connection_is_whole(serve: Serve, user: MakeUser) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    body = f"data: {delta(content='x')}\n\ndata: [DONE]\n\n".encode()
    replica = await serve(reply(head + body, then="fin"))
    answer = await user(replica.port).ask(chat())
    assert (answer.failure, answer.events) == (None, 2)


@pytest.mark.parametrize(
    "raw",
    [
        sized(b'{"choices":[]}'),
        sized(b""),
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + sized(b"{}"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"{}") + LAST_CHUNK,
    ],
    ids=["length", "empty", "interim head", "chunked"],
)
async def test_answer_that_is_no_stream_is_whole_at_its_end(serve: Serve, user: MakeUser, raw: bytes) -> None:
    replica = await serve(reply(raw))
    one = user(replica.port)
    for _ in range(2):
        answer = await one.ask(chat(stream=False))
        assert (answer.status, answer.failure, answer.events) == (200, None, 0)
    assert len(replica.connections) == 1


async def test_connection_that_the_server_closes_is_replaced(serve: Serve, user: MakeUser) -> None:
    replica = await serve(reply(sized(b"{}", headers="Connection: close\r\n")))
    one = user(replica.port)
    for _ in range(2):
        assert (await one.ask(chat())).failure is None
    assert len(replica.connections) == 2


async def test_bytes_that_nobody_asked_for_end_the_connection(serve: Serve, user: MakeUser) -> None:
    replica = await serve(reply(sized(b"{}") + b"HTTP/1.1 200 OK\r\n"))
    one = user(replica.port)
    assert (await one.ask(chat())).failure is None
    await replica.requests[0].aborted()
    assert (await one.ask(chat())).failure is None
    assert len(replica.connections) == 2


async def test_refused_connection_is_a_failure(user: MakeUser, tally: Tally) -> None:
    replica = FakeReplica()
    try:
        answer = await user(replica.port).ask(chat())
    finally:
        await replica.stop()
    assert (answer.status, answer.failure) == (0, "no connection")
    assert (tally.started, tally.failed, tally.in_flight) == (1, 1, 0)


async def test_cancelled_request_is_cut_and_the_server_sees_it(
    serve: Serve, user: MakeUser, tally: Tally
) -> None:
    replica = await serve(held(SSE_HEAD + ROLE, asyncio.Event()))
    asking = asyncio.gather(user(replica.port).ask(chat()))
    await eventually(lambda: tally.events, "the role has come")
    assert tally.in_flight == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await replica.requests[0].aborted()
    assert (tally.cut, tally.answered, tally.failed, tally.in_flight) == (1, 0, 0, 0)
