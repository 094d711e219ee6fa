"""A client that leaves: its request is aborted at once in every stage, and nobody else notices."""

import asyncio
import json
import random

import pytest

from tests.fakes.client import AbruptClient, Client, chat, chat_body, request
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
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import Ending, PeerGone, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
ABORT = 2.5
"""Seconds; five times what cancellation may take to reach an engine."""


async def gone_in(router: RunningRouter, stage: str) -> None:
    """Assert that one request ended because its client left, in this stage."""
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    metrics = await router.metrics()
    assert metrics.value("client_gone_total", stage=stage) == 1
    assert metrics.value("client_gone_total") == 1


REQUESTS = {
    "chat": chat(stream=False),
    "chat-stream": chat(stream=True),
    "embeddings": request("POST", "/v1/embeddings", b'{"model":"m1","input":"x"}'),
    "chunked-upload": request("POST", "/v1/completions", b'{"model":"m1"}', chunked=True),
}


@pytest.mark.parametrize("raw", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_before_the_head_aborts(
    start_router: StartRouter, how: Ending, raw: bytes
) -> None:
    first, second = FakeReplica(silence), FakeReplica(silence)
    router = await start_router(first, second)
    client = await router.begin(raw)
    await router.stage(sent=1)
    (received,) = first.requests + second.requests
    client.leave(how)
    await received.aborted(ABORT)
    await gone_in(router, "sent")
    assert len(first.requests + second.requests) == 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_in_a_silent_gap_aborts(start_router: StartRouter, how: Ending) -> None:
    replica = FakeReplica(stall(SSE_HEAD + event("1")))
    router = await start_router(replica)
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    client.leave(how)
    await replica.requests[0].aborted(ABORT)
    await gone_in(router, "streaming")


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_while_events_flow_aborts(start_router: StartRouter, how: Ending) -> None:
    async def endless(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(event("tick"))
            await asyncio.sleep(0.001)

    replica = FakeReplica(endless)
    router = await start_router(replica)
    client = await router.begin(chat())
    await client.wire.expect(event("tick"))
    client.leave(how)
    await replica.requests[0].aborted(ABORT)
    await gone_in(router, "streaming")


@pytest.mark.parametrize("head", [b"", SSE_HEAD + event("1"), b"HTTP/1.1 200 OK\r\n\r\nx"])
async def test_half_close_counts_as_gone(start_router: StartRouter, head: bytes) -> None:
    replica = FakeReplica(stall(head))
    router = await start_router(replica)
    client = await router.begin(chat())
    await router.stage(**({"streaming": 1} if head else {"sent": 1}))
    client.wire.half_close()
    await replica.requests[0].aborted(ABORT)
    await gone_in(router, "streaming" if head else "sent")
    await client.gone()


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_client_that_leaves_in_its_upload_reaches_no_replica(
    start_router: StartRouter, how: Ending, framing: str
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    raw = request("POST", "/v1/chat/completions", chat_body(pad="x" * 1000), chunked=framing == "chunked")
    client = await router.begin(raw[:-200])
    await router.stage(receiving=1)
    client.leave(how)
    await gone_in(router, "receiving")
    assert replica.requests == []


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_takes_back_what_the_replica_has_not_read(
    start_router: StartRouter, how: Ending
) -> None:
    """A request that still waits in our buffer must not be delivered whole after its client has left."""
    replica = FakeReplica(read_bodies=False)
    resumed = asyncio.Event()

    async def read_nothing(_: Received, connection: Connection) -> None:
        connection.wire.pause()
        await resumed.wait()
        connection.wire.resume()
        await connection.wire.gone(60)

    replica.script = read_nothing
    # The policy looks into prompts, so that all of it is held here.
    router = await start_router(replica, policy="prefix-hash")
    raw = chat(pad="x" * 30_000_000)
    client = await router.begin(raw)
    await router.stage(sent=1)
    client.leave(how)
    await gone_in(router, "sent")
    resumed.set()
    wire = replica.used_connections[0].wire
    await wire.gone(ABORT)
    assert wire.count_received < len(raw)


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_while_waiting_for_a_slot_frees_its_place(
    start_router: StartRouter, how: Ending
) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event("1"))
        if b"holder" in received.body:
            await gate.wait()
        await connection.send(LAST_CHUNK)

    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 1})
    holder = await router.begin(chat(user="holder"))
    await holder.wire.expect(event("1"))
    waiting = [await router.begin(chat(user=f"waits {number}")) for number in range(20)]
    await router.stage(streaming=1, connecting=20)
    for client in waiting:
        client.leave(how)
    ledger = await router.stage(streaming=1)
    assert ledger["connector"]["waiting"] == 0
    assert ledger.finished == {"client_gone": 20}
    gate.set()
    assert (await holder.answer()).ended == "clean"
    assert (await router.ask(chat(user="after"))).ended == "clean"
    assert [json.loads(received.body)["user"] for received in replica.requests] == ["holder", "after"]
    assert (await router.metrics()).value("client_gone_total", stage="connecting") == 20


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_that_leaves_during_the_handshake_is_forgotten(
    start_router: StartRouter, how: Ending
) -> None:
    replica = FakeReplica()
    router = await start_router(replica, health={"interval": 1000})
    await replica.stop_answering_connects()
    client = await router.begin(chat())
    await router.stage(connecting=1)
    client.leave(how)
    await gone_in(router, "connecting")
    assert replica.requests == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_cut_uploads_do_not_disturb_whole_ones(
    start_router: StartRouter, framing: str, how: Ending
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    whole = request("POST", "/v1/chat/completions", chat_body(pad="x" * 50_000), chunked=framing == "chunked")

    async def cut() -> None:
        client = await router.begin(whole[:20_000])
        client.leave(how)

    answers, _ = await asyncio.gather(
        router.ask_each([whole] * 50), asyncio.gather(*(cut() for _ in range(50)))
    )
    assert [answer.status for answer in answers] == [200] * 50
    ledger = await router.settled()
    assert len(replica.requests) == 50
    # A reset may overtake the head of its request, which then was never accepted.
    assert set(ledger.finished) <= {"ok", "client_gone"}
    assert ledger.finished["ok"] == 50


async def test_departed_client_leaves_other_streams_alone(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    router = await start_router(replica)
    staying = [await router.begin(chat()) for _ in range(5)]
    leaving = [await router.begin(chat()) for _ in range(5)]
    for client in staying + leaving:
        await client.wire.expect(event("1"))
    for client in leaving:
        client.leave("rst")
    await router.stage(streaming=5)
    gate.set()
    for client in staying:
        assert (await client.answer()).body.raw == event("1") + LAST_CHUNK
    assert (await router.settled()).finished == {"ok": 5, "client_gone": 5}


async def test_next_request_of_a_departed_pipeline_is_not_sent(start_router: StartRouter) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica)
    client = await router.begin(chat(user="a") + chat(user="b"))
    await router.stage(sent=1)
    client.leave()
    await router.settled()
    assert [json.loads(received.body)["user"] for received in replica.requests] == ["a"]


async def test_cancelled_requests_never_poison_the_pool(start_router: StartRouter) -> None:
    """Every completed answer is the one to its own request, whoever left before."""
    chance = random.Random(5)

    async def echo(received: Received, connection: Connection) -> None:
        turns, shape = json.loads(received.body)["turns"], len(received.body) % 3
        for _ in range(turns):
            await asyncio.sleep(0)
        raw = sized(received.body)
        if shape == 0:
            await connection.send(raw)
        elif shape == 1:
            await connection.send_in_pieces(raw, 40)
        else:
            half = received.body[: len(received.body) // 2]
            await connection.send(SSE_HEAD + b"%x\r\n%s\r\n" % (len(half), half))
            await asyncio.sleep(0)
            half = received.body[len(half) :]
            await connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(half), half))

    first, second = FakeReplica(echo), FakeReplica(echo)
    router = await start_router(first, second)
    mixed_up: list[bytes] = []

    async def work(worker: int) -> int:
        completed = 0
        client = await router.connect()
        for turn in range(25):
            body = chat_body(nonce=f"{worker}-{turn}", turns=chance.randrange(12), pad="p" * (turn % 5))
            await client.send(request("POST", "/v1/chat/completions", body))
            if chance.random() < 0.4:
                for _ in range(chance.randrange(20)):
                    await asyncio.sleep(0)
                client.leave(chance.choice(ENDINGS))
                client = await router.connect()
                continue
            entity = (await client.answer()).body.entity
            completed += 1
            if entity != body:
                mixed_up.append(entity)
        return completed

    completed = sum(await asyncio.gather(*(work(worker) for worker in range(30))))
    assert mixed_up == []
    ledger = await router.settled()
    assert ledger["finished"]["ok"] >= completed
    assert set(ledger.finished) <= {"ok", "client_gone"}
    assert sum(ledger.finished.values()) == ledger["received_total"]
    assert ledger["connector"]["idle"] <= 30


async def test_aborted_connection_is_never_reused(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if b"leaver" in received.body:
            await gate.wait()
            await connection.send(sized(b'"the answer of the leaver"'))
        else:
            await connection.send(OK)

    replica = FakeReplica(script)
    router = await start_router(replica, connector={"limit": 1})
    client = await router.begin(chat(user="leaver"))
    await router.stage(sent=1)
    client.leave()
    await replica.requests[0].aborted(ABORT)
    gate.set()
    answers = [await router.ask(chat(user="next")) for _ in range(3)]
    assert [answer.body.raw for answer in answers] == [b'{"object":"chat.completion"}'] * 3
    assert len(replica.used_connections) == 2


@pytest.mark.parametrize("reads", [0, 1, 100, 200])
async def test_client_that_leaves_in_a_running_answer_is_not_counted_as_served(
    start_router: StartRouter, reads: int
) -> None:
    gate = asyncio.Event()
    told, end = SHORT_STREAM.split(event("[DONE]"))
    replica = FakeReplica(held(told, gate, event("[DONE]") + end))
    router = await start_router(replica)
    client = await router.begin(chat())
    await client.wire.read_exactly(reads)
    await router.stage(streaming=1)
    client.leave()
    await replica.requests[0].aborted(ABORT)
    gate.set()
    assert (await router.settled()).finished == {"client_gone": 1}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("last", [True, False], ids=["last-bytes", "more-to-come"])
@pytest.mark.parametrize("first", ["bytes", "departure"])
async def test_bytes_and_departure_in_one_turn(
    start_router: StartRouter, first: str, last: bool, how: Ending
) -> None:
    """What comes for a client that has just left is not served to it."""
    replica = FakeReplica(stall(SSE_HEAD + event("1")))
    router = await start_router(replica)
    for _ in range(5):
        client = AbruptClient(router.port, chat())
        await router.stage(streaming=1)
        wire = replica.requests[-1].connection.wire
        if first == "departure":
            client.leave(how)
        wire.send_at_once(event("2") + (LAST_CHUNK if last else b""))
        if first == "bytes":
            client.leave(how)
        await router.settled()
        wire.close()
    finished = (await router.settled()).finished
    assert sum(finished.values()) == 5
    if last and first == "bytes":
        assert set(finished) <= {"ok", "client_gone"}
    else:
        assert finished == {"client_gone": 5}


async def test_a_burst_in_which_some_leave_again_costs_the_others_nothing(start_router: StartRouter) -> None:
    """Whatever comes in one turn of the loop is handled in one: those that stay get their own answers."""

    async def echo(received: Received, connection: Connection) -> None:
        await connection.send(sized(received.body))

    router = await start_router(FakeReplica(echo), FakeReplica(echo))
    stayers = [await router.connect() for _ in range(40)]
    for turn in range(5):
        for number, client in enumerate(stayers):
            if number % 8 == 0:
                AbruptClient(router.port, chat(stream=False)).leave("rst" if number % 16 else "fin")
                AbruptClient(router.port, b"nonsense\r\n\r\n").leave()
            await client.send(chat(stream=False, user=f"{number}.{turn}"))
        for number, client in enumerate(stayers):
            answer = await client.answer()
            assert (answer.status, answer.json()["user"]) == (200, f"{number}.{turn}")
    finished = (await router.settled()).finished
    assert finished["ok"] >= len(stayers) * 5
    assert set(finished) <= {"ok", "client_gone", "invalid_request"}


@pytest.mark.parametrize("first", ["answer", "departure"])
async def test_whole_answer_and_departure_in_one_turn(start_router: StartRouter, first: str) -> None:
    """Who has ended his side either gets the whole answer, or counts as gone."""
    replica = FakeReplica(stall(b""))
    router = await start_router(replica)
    delivered = 0
    for number in range(10):
        client = AbruptClient(router.port, chat(stream=False))
        await router.stage(sent=1)
        wire = replica.requests[-1].connection.wire
        if first == "departure":
            client.end_sending()
        wire.send_at_once(OK)
        if first == "answer":
            client.end_sending()
        finished = (await router.settled()).finished
        assert sum(finished.values()) == number + 1
        delivered += client.read_to_end().endswith(OK.partition(b"\r\n\r\n")[2])
        assert finished.get("ok", 0) == delivered
        client.leave()
        wire.close()


async def test_client_that_leaves_an_idle_connection_is_no_request(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    client = await router.connect()
    assert (await client.ask(chat())).status == 200
    client.leave()
    await eventually(lambda: client.wire.closed, "our end")
    assert (await router.settled()).finished == {"ok": 1}


async def test_leaving_with_an_unread_large_answer_aborts(start_router: StartRouter) -> None:
    async def flood(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while True:
            await connection.send(event("x" * 60_000))

    replica = FakeReplica(flood)
    router = await start_router(replica)
    client: Client = await router.connect(receive_buffer=65536)
    await client.send(chat())
    await client.wire.expect(event("x" * 60_000))
    client.wire.pause()
    wire = replica.used_connections[0].wire
    await eventually(lambda: wire.write_blocked, "the replica is blocked")
    client.leave("rst")
    await replica.requests[0].aborted(ABORT)
    await gone_in(router, "streaming")


async def test_answer_that_is_read_to_the_end_counts_as_served(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(SHORT_STREAM)))
    client = await router.begin(chat())
    assert (await client.answer()).ended == "clean"
    client.leave("rst")
    with pytest.raises(PeerGone):
        await client.head()
    assert (await router.settled()).finished == {"ok": 1}
