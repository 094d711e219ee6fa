"""The fakes checked against each other: what one does, the other must be able to see."""

import asyncio

import pytest

from tests.fakes.client import Connect, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import (
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
from tests.fakes.wire import Ending, PeerGone, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")


async def test_replica_records_the_request_as_sent(connect: Connect) -> None:
    async with FakeReplica(reply(sized(b"{}"))) as replica:
        client = await connect(replica.port)
        answer = await client.ask(chat(stream=False, n=2))
        (received,) = await replica.received()
    assert answer.status == 200
    assert answer.body.entity == b"{}"
    assert received.method == "POST"
    assert received.target == "/v1/chat/completions"
    assert received.body == chat_body(stream=False, n=2)
    assert received.head.raw + received.raw_body == chat(stream=False, n=2)


async def test_two_requests_share_a_connection(connect: Connect) -> None:
    async with FakeReplica() as replica:
        client = await connect(replica.port)
        await client.ask(chat())
        await client.ask(chat())
        assert [r.connection.number for r in await replica.received(2)] == [1, 1]
        assert len(replica.used_connections) == 1


async def test_chunked_bodies_are_unwrapped_on_both_sides(connect: Connect) -> None:
    raw = SSE_HEAD + event("1") + b"2;ext=1\r\nab\r\n0\r\nX-Trailer: t\r\n\r\n"
    async with FakeReplica(reply(raw)) as replica:
        client = await connect(replica.port)
        answer = await client.ask(request("POST", "/x", b"body", chunked=True))
        (received,) = await replica.received()
    assert received.body == b"body"
    assert received.raw_body == chunk(b"body") + LAST_CHUNK
    assert answer.head.raw + answer.body.raw == raw
    assert answer.body.entity == b"data: 1\n\nab"
    assert answer.body.trailers == b"X-Trailer: t\r\n"
    assert answer.ended == "clean"


@pytest.mark.parametrize("how", ENDINGS)
async def test_cut_stream_is_dirty(connect: Connect, how: Ending) -> None:
    async def cut(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event("1"))
        await proceed.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    proceed = asyncio.Event()
    async with FakeReplica(cut) as replica:
        client = await connect(replica.port)
        await client.send(chat())
        head = await client.head()
        await client.wire.expect(b"data: 1")
        proceed.set()
        body = await client.body(head)
        assert body.ended == "dirty"
        assert body.entity == b"data: 1\n\n"
        assert await client.gone() == how


@pytest.mark.parametrize("how", ENDINGS)
async def test_replica_sees_how_the_client_leaves(connect: Connect, how: Ending) -> None:
    async with FakeReplica(silence) as replica:
        client = await connect(replica.port)
        await client.send(chat())
        (received,) = await replica.received()
        assert received.gone is None
        client.leave(how)
        assert await received.aborted() == how
        assert received.gone_at is not None
        assert received.gone_at >= received.at


async def test_cut_upload_is_never_complete(connect: Connect) -> None:
    async with FakeReplica() as replica:
        client = await connect(replica.port)
        await client.send(chat()[:-1])
        client.leave()
        await eventually(lambda: replica.requests and replica.requests[0].gone, "the cut is seen")
        assert replica.complete == []


async def test_probes_are_answered_apart_from_the_script(connect: Connect) -> None:
    async with FakeReplica(silence) as replica:
        replica.probes.models = ["a", "b"]
        replica.probes.gauges = {"vllm:num_requests_waiting": 3.0}
        client = await connect(replica.port)
        health = await client.ask(request("GET", "/health"))
        models = await client.ask(request("GET", "/v1/models"))
        metrics = await client.ask(request("GET", "/metrics"))
        assert replica.requests == []
    assert health.status == 200
    assert [card["id"] for card in models.json()["data"]] == ["a", "b"]
    assert b'vllm:num_requests_waiting{engine="0",model_name="m1"} 3.0' in metrics.body.entity


async def test_gate_holds_the_rest_of_an_answer(connect: Connect) -> None:
    gate = asyncio.Event()
    async with FakeReplica(held(SHORT_STREAM[:-5], gate, LAST_CHUNK)) as replica:
        client = await connect(replica.port)
        await client.send(chat())
        await client.wire.expect(b"[DONE]")
        gate.set()
        assert (await client.answer()).ended == "clean"


async def test_refusing_replica_refuses_and_comes_back_on_its_port(connect: Connect) -> None:
    async with FakeReplica() as replica:
        await replica.refuse()
        with pytest.raises(ConnectionRefusedError):
            await connect(replica.port)
        await replica.listen()
        client = await connect(replica.port)
        assert (await client.ask(chat())).status == 200


async def test_deaf_replica_leaves_connects_hanging(connect: Connect) -> None:
    async with FakeReplica() as replica:
        await replica.stop_answering_connects()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await connect(replica.port)


async def test_small_buffers_block_the_sender_until_the_reader_reads(connect: Connect) -> None:
    body = bytes(8_000_000)

    async with FakeReplica(reply(sized(body))) as replica:
        client = await connect(replica.port, receive_buffer=65536)
        await client.send(chat())
        head = await client.head()
        client.wire.pause()
        wire = replica.used_connections[0].wire
        await eventually(lambda: wire.write_blocked, "the replica is blocked")
        client.wire.resume()
        assert (await client.body(head)).entity == body


async def test_failing_script_fails_the_test(connect: Connect) -> None:
    async def wrong(_: Received, __: Connection) -> None:
        raise AssertionError("the script found a fault")

    replica = FakeReplica(wrong)
    await replica.listen()
    client = await connect(replica.port)
    await client.send(chat())
    await eventually(lambda: replica.requests, "the request arrives")
    await eventually(lambda: replica.faults, "the fault is kept")
    await replica.stop()
    assert [str(fault) for fault in replica.faults] == ["the script found a fault"]


async def test_missing_bytes_are_named_in_the_failure(connect: Connect) -> None:
    async with FakeReplica(reply(b"HTTP/1.1 200 OK\r\n")) as replica:
        client = await connect(replica.port)
        await client.send(chat())
        with pytest.raises(AssertionError, match="200 OK"):
            await client.head(deadline=0.1)
        client.leave()
        await replica.requests[0].aborted()


async def test_end_before_the_answer_is_told_from_silence(connect: Connect) -> None:
    async with FakeReplica(reply(b"HTTP/1.1 200", then="fin")) as replica:
        client = await connect(replica.port)
        with pytest.raises(PeerGone) as gone:
            await client.ask(chat())
    assert gone.value.got == b"HTTP/1.1 200"


async def test_condition_that_never_holds_is_named() -> None:
    with pytest.raises(AssertionError, match="the moon"):
        await eventually(lambda: False, "the moon", deadline=0.02)
