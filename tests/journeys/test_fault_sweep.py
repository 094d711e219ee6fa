"""The fault sweep: one side is cut at every possible moment, and after each cut the ledger settles, each
request is counted once, and nothing that was cut counts as served."""

import asyncio

import pytest

from tests.fakes.client import chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    SHORT_STREAM,
    Connection,
    FakeReplica,
    Received,
    event,
    reply,
    silence,
    sized,
    stall,
)
from tests.fakes.running import Ledger, RunningRouter, StartRouter
from tests.fakes.wire import Ending, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
TURNS = 150
"""Turns of the event loop; one request takes about a third of these."""

STREAMED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + event("1") + LAST_CHUNK
SIZED = sized(b'{"a":1}')


async def counted_once(router: RunningRouter) -> Ledger:
    """Assert that at rest every request that came in has ended in one way, in every view."""
    ledger = await router.settled()
    metrics = await router.metrics()
    assert sum(ledger.finished.values()) == ledger["received_total"]
    assert metrics.value("requests_total") == ledger["received_total"]
    assert metrics.value("requests_received_total") == ledger["received_total"]
    assert metrics.value("client_gone_total") == ledger.finished.get("client_gone", 0)
    assert "unsettled" not in ledger.finished
    return ledger


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("raw", [SHORT_STREAM, SIZED], ids=["stream", "sized"])
async def test_client_cut_after_any_number_of_turns(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    router = await start_router(FakeReplica(reply(raw)))
    for count in range(TURNS):
        client = await router.begin(chat())
        await turns(count)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"ok", "client_gone"}
    # The late cuts come after the answer, so that the sweep spans the whole request.
    assert ledger.finished["ok"] >= 1
    assert ledger.finished["client_gone"] >= 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_after_any_number_of_turns_is_never_served_by_a_held_answer(
    start_router: StartRouter, how: Ending
) -> None:
    router = await start_router(FakeReplica(stall(SHORT_STREAM[:-1])))
    for count in range(TURNS):
        client = await router.begin(chat())
        await turns(count)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) == {"client_gone"}


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_after_any_byte_of_its_request(start_router: StartRouter, how: Ending) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica)
    raw = chat()
    for count in range(1, len(raw)):
        client = await router.begin(raw[:count])
        client.leave(how)
    ledger = await counted_once(router)
    assert replica.requests == []
    assert set(ledger.finished) <= {"client_gone"}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("raw", [STREAMED, SIZED], ids=["stream", "sized"])
async def test_client_cut_after_any_byte_of_its_answer(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    router = await start_router(FakeReplica(stall(raw[:-1])))
    received: list[int] = []
    for count in range(0, len(raw), 3):
        client = await router.begin(chat())
        received.append(len(await client.wire.read_exactly(count)))
        client.leave(how)
    ledger = await counted_once(router)
    assert ledger.finished == {"client_gone": len(received)}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("raw", [STREAMED, SIZED], ids=["stream", "sized"])
async def test_replica_cut_after_any_byte_of_its_answer(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    length = 0

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(raw[:length])
        connection.wire.close() if how == "fin" else connection.wire.reset()

    replica = FakeReplica(script)
    router = await start_router(replica)
    body_start = raw.index(b"\r\n\r\n") + 4
    for length in range(len(raw)):
        answer = await router.ask(chat())
        if length < body_start:
            answer.refused(502, "replica_disconnected")
        elif answer.status == 200:
            assert answer.ended == "dirty"
        else:
            answer.refused(502, "replica_disconnected")
    ledger = await counted_once(router)
    assert ledger.finished == {"replica_disconnected": len(raw)}
    assert len(replica.requests) == len(raw)


@pytest.mark.parametrize("how", ENDINGS)
async def test_replica_cut_after_any_number_of_turns(start_router: StartRouter, how: Ending) -> None:
    count = 0

    async def script(_: Received, connection: Connection) -> None:
        for piece in (SHORT_STREAM[:20], SHORT_STREAM[20:-1]):
            connection.wire.transport.write(piece)
            await turns(count)
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    for count in range(40):  # noqa: B007 - the script reads it
        answer = await router.ask(chat())
        assert answer.status == 502 or answer.ended == "dirty"
    ledger = await counted_once(router)
    assert ledger.finished == {"replica_disconnected": 40}


@pytest.mark.parametrize("how", ENDINGS)
async def test_both_sides_cut_after_any_number_of_turns(start_router: StartRouter, how: Ending) -> None:
    count = 0

    async def script(_: Received, connection: Connection) -> None:
        connection.wire.transport.write(SHORT_STREAM[:-1])
        await turns(count)
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    for count in range(40):
        client = await router.begin(chat())
        await turns(count + 20)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"client_gone", "replica_disconnected"}


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_while_it_waits_for_a_slot(start_router: StartRouter, how: Ending) -> None:
    """A slot granted in the very turn in which its waiter leaves must go to the next one."""
    replica = FakeReplica(reply(SIZED))
    router = await start_router(replica, connector={"limit": 1})
    for count in range(TURNS // 2):
        clients = [await router.begin(chat()) for _ in range(4)]
        await turns(count)
        for client in clients[1:3]:
            client.leave(how)
        for client in (clients[0], clients[3]):
            assert (await client.answer()).status == 200
            client.leave()
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"ok", "client_gone"}
    assert ledger.finished["ok"] >= TURNS


async def test_router_stopped_after_any_number_of_turns_leaves_nobody_waiting(
    start_router: StartRouter,
) -> None:
    replica = FakeReplica(stall(SHORT_STREAM[:-1]))
    await start_router(replica)
    for count in range(0, 60, 4):
        router = await start_router(replica.settings["url"], ready=1)
        clients = [await router.begin(chat()) for _ in range(3)]
        await turns(count)
        await router.stop()
        for client in clients:
            await client.gone()
            assert not client.wire.unread.endswith(LAST_CHUNK)
    await eventually(lambda: all(received.gone for received in replica.requests), "all are aborted")
