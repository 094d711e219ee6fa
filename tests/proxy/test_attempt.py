"""One try at one replica: the head of its answer, and how long it may take."""

import asyncio
from typing import Any

import pytest

from replicarouter.errors import (
    BadReplicaResponse,
    IdleTimeout,
    ReplicaDisconnected,
    ResponseHeadTimeout,
)
from replicarouter.exchange import Stage
from replicarouter.protocol.response_head import MAX_HEAD
from replicarouter.proxy.attempt import MOST_INTERIM
from replicarouter.proxy.outbox import MOST
from replicarouter.proxy.upstream import Link
from tests.fakes.client import request
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
from tests.fakes.wire import PeerGone, eventually
from tests.proxy.conftest import StartFront
from tests.proxy.rig import HEAD, Rig, a_rig

CHAT = request("POST", "/v1/chat/completions", b"{}")


async def fails(rig: Rig, error: type[BaseException]) -> None:
    """Ask once; the attempt ends in this error."""
    client = await rig.connect()
    await client.send(CHAT)
    await eventually(lambda: rig.error is not None, "the attempt fails")
    assert type(rig.error) is error


async def test_head_and_body_go_to_the_replica_as_given(start_front: StartFront) -> None:
    async with FakeReplica() as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        assert (await client.ask(CHAT)).status == 200
        (received,) = await fake.received()

    assert received.head.raw == HEAD
    assert received.body == b"{}"


async def test_the_stages_follow_one_another(start_front: StartFront) -> None:
    gate = asyncio.Event()
    async with FakeReplica(held(b"", gate, SSE_HEAD + event("1"))) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await eventually(lambda: rig.replica.count(Stage.SENT) == 1, "it is sent")
        assert rig.exchange.stage is Stage.SENT
        gate.set()
        await client.wire.expect(b"data: 1")
        assert (rig.exchange.stage, rig.exchange.status) == (Stage.STREAMING, 200)
        assert rig.replica.count(Stage.STREAMING) == rig.replica.outstanding == 1
        assert rig.exchange.sent_at <= rig.exchange.head_at


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
async def test_a_head_that_comes_in_pieces_is_one_head(start_front: StartFront, size: int) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK

    async def script(_: Received, connection: Connection) -> None:
        await connection.send_in_pieces(raw, size)

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(CHAT)

    assert (answer.status, answer.informational) == (200, [])
    assert answer.body.entity == b'{"object":"chat.completion"}'


async def test_a_few_interim_heads_are_skipped(start_front: StartFront) -> None:
    script = reply(b"HTTP/1.1 103 X\r\n\r\n" * MOST_INTERIM + OK)
    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        assert (await client.ask(CHAT)).status == 200


BAD_HEADS = {
    "no HTTP": b"hello",
    "no HTTP, and no end": b"SSH-2.0-OpenSSH_9.2\r\n",
    "another protocol": b"HTTP/2 200 OK\r\n\r\n",
    "a bare line feed": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "a folded field": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "a session that nobody asked for": b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    "a head too large": b"HTTP/1.1 200 OK\r\nA: " + b"b" * MAX_HEAD + b"\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
    "a bad head behind an interim one": b"HTTP/1.1 103 X\r\n\r\nhello",
    "interim heads without end": b"HTTP/1.1 103 X\r\n\r\n" * (MOST_INTERIM + 1),
}


@pytest.mark.parametrize("name", BAD_HEADS)
async def test_a_head_that_is_not_well_formed_ends_the_attempt(start_front: StartFront, name: str) -> None:
    async with FakeReplica(reply(BAD_HEADS[name])) as fake, a_rig(fake, start_front) as rig:
        await fails(rig, BadReplicaResponse)
        await fake.requests[0].aborted()
        assert rig.callers[0].relay is None


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nA: b\r\n"])
@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_connection_that_ends_before_the_head_is_a_disconnection(
    start_front: StartFront, before: bytes, how: Any
) -> None:
    async with FakeReplica(reply(before, then=how)) as fake, a_rig(fake, start_front) as rig:
        await fails(rig, ReplicaDisconnected)


async def test_a_head_that_does_not_come_in_time_ends_the_attempt(start_front: StartFront) -> None:
    async with FakeReplica(silence) as fake, a_rig(fake, start_front, response_head=0.1) as rig:
        await fails(rig, ResponseHeadTimeout)
        await fake.requests[0].aborted()


async def test_an_interim_head_does_not_stop_the_clock(start_front: StartFront) -> None:
    script = held(b"HTTP/1.1 103 Early Hints\r\n\r\n", asyncio.Event())
    async with FakeReplica(script) as fake, a_rig(fake, start_front, response_head=0.1) as rig:
        await fails(rig, ResponseHeadTimeout)


async def test_the_head_time_ends_with_the_head(start_front: StartFront) -> None:
    gate = asyncio.Event()
    script = held(SSE_HEAD + event("1"), gate, event("2") + b"0\r\n\r\n")
    async with FakeReplica(script) as fake, a_rig(fake, start_front, response_head=0.1) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await client.wire.expect(b"data: 1")
        await asyncio.sleep(0.2)
        gate.set()
        assert (await client.answer()).ended == "clean"
        assert rig.error is None


async def test_silence_inside_an_answer_ends_it(start_front: StartFront) -> None:
    script = held(SSE_HEAD + event("1"), asyncio.Event())
    async with FakeReplica(script) as fake, a_rig(fake, start_front, idle=0.1) as rig:
        await fails(rig, IdleTimeout)
        await fake.requests[0].aborted()


async def test_an_answer_that_keeps_coming_is_not_idle(start_front: StartFront) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for number in range(6):
            await asyncio.sleep(0.1)
            await connection.send(event(str(number)))
        await connection.send(b"0\r\n\r\n")

    async with FakeReplica(script) as fake, a_rig(fake, start_front, idle=0.5) as rig:
        client = await rig.connect()
        assert (await client.ask(CHAT)).ended == "clean"
        assert rig.error is None


async def test_a_client_that_does_not_read_is_not_the_replicas_silence(start_front: StartFront) -> None:
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while not gate.is_set():
            await connection.send(event("x" * 60_000))
        await connection.send(b"0\r\n\r\n")

    async with FakeReplica(script) as fake, a_rig(fake, start_front, idle=0.1) as rig:
        client = await rig.connect(receive_buffer=65536)
        client.wire.pause()
        await client.send(CHAT)
        await eventually(lambda: (relay := rig.callers and rig.callers[0].relay) and relay.held, "it is held")
        await asyncio.sleep(0.3)
        assert rig.error is None
        gate.set()
        client.wire.resume()
        assert (await client.answer()).ended == "clean"


@pytest.mark.parametrize("stage", ["sent", "streaming"])
async def test_a_client_that_leaves_ends_the_attempt_at_once(start_front: StartFront, stage: str) -> None:
    before = b"" if stage == "sent" else SSE_HEAD + event("1")
    async with FakeReplica(held(before, asyncio.Event())) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await fake.received()
        if before:
            await client.wire.expect(b"data: 1")
        client.leave("rst")
        await fake.requests[0].aborted(deadline=0.5)


async def test_a_body_that_ends_with_its_connection_ends_that_of_the_client(start_front: StartFront) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"
    async with FakeReplica(reply(raw, then="fin")) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        answer = await client.ask(CHAT)

    assert (answer.head.get("connection"), answer.body.entity, answer.ended) == ("close", b"hello", "clean")


async def test_nothing_comes_when_the_client_has_gone_before_the_answer(start_front: StartFront) -> None:
    gate = asyncio.Event()
    async with FakeReplica(held(b"", gate, OK)) as fake, a_rig(fake, start_front) as rig:
        client = await rig.connect()
        await client.send(CHAT)
        await fake.received()
        client.leave("rst")
        gate.set()
        await eventually(lambda: rig.error is not None, "the attempt is over")
        with pytest.raises(PeerGone):
            await client.send(b"x")


async def test_those_that_come_in_one_turn_all_get_their_own_answers(start_front: StartFront) -> None:
    async def script(received: Received, connection: Connection) -> None:
        await connection.send(sized(str(connection.number).encode()))

    async with FakeReplica(script) as fake, a_rig(fake, start_front) as rig:
        assert rig.front is not None
        clients = [await rig.connect() for _ in range(3 * MOST)]
        for _ in range(2):
            for client in clients:
                await client.send(CHAT)
            bodies = [(await client.answer()).body.entity for client in clients]
            assert len(set(bodies)) == len(clients)
        assert rig.front.server.wakes.coming == set()
        assert len(await fake.received()) == 2 * len(clients)


async def test_one_that_is_refused_keeps_no_other_back(start_front: StartFront) -> None:
    async with FakeReplica(reply(OK)) as fake, a_rig(fake, start_front) as rig:
        assert rig.front is not None
        clients = [await rig.connect() for _ in range(3)]
        await clients[0].send(CHAT)
        await clients[1].send(CHAT)
        await clients[2].send(b"nonsense\r\n\r\n")
        assert [(await client.answer()).status for client in clients] == [200, 200, 400]
        assert rig.front.server.wakes.coming == set()


async def test_one_that_is_interrupted_before_its_turn_is_not_sent(start_front: StartFront) -> None:
    def interrupt(rig: Rig, _: Link) -> None:
        task = asyncio.current_task()
        assert rig.front is not None
        assert task is not None
        rig.front.server.wakes.coming.add("another")
        asyncio.get_running_loop().call_soon(task.cancel)

    async with FakeReplica(reply(OK)) as fake, a_rig(fake, start_front) as rig:
        rig.meanwhile = interrupt
        client = await rig.connect()
        await client.send(CHAT)
        await client.gone()
        assert type(rig.error) is asyncio.CancelledError
        assert rig.exchange.sent_at == 0
        await fake.connections[0].wire.gone()
        assert fake.requests == []


async def test_one_whose_replica_leaves_before_its_turn_fails_at_once(start_front: StartFront) -> None:
    def lose(rig: Rig, link: Link) -> None:
        assert rig.front is not None
        assert link.transport is not None
        rig.front.server.wakes.coming.add("another")
        link.transport.abort()

    async with FakeReplica(reply(OK)) as fake, a_rig(fake, start_front) as rig:
        rig.meanwhile = lose
        await fails(rig, ReplicaDisconnected)
