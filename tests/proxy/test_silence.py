"""How long an answer may be silent, and what its reader is told meanwhile."""

import asyncio

import pytest

from replicarouter.errors import IdleTimeout
from tests.fakes.client import chat
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event, held, stall
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront
from tests.proxy.rig import a_rig

COMMENT = chunk(b": keep-alive\n\n")


@pytest.mark.parametrize("comments", [0.0, 0.04])
async def test_silence_beyond_the_limit_ends_the_answer(start_front: StartFront, comments: float) -> None:
    fake = FakeReplica(stall(SSE_HEAD + event("1")))
    async with fake, a_rig(fake, start_front, idle=0.3, sse_keepalive=comments) as rig:
        client = await rig.connect()
        await client.send(chat())
        got = await client.wire.read_to_end()
        assert isinstance(rig.error, IdleTimeout)
        # Comments are for the client: they do not make a silent replica alive.
        assert (COMMENT in got) == bool(comments)


async def test_bytes_end_the_silence(start_front: StartFront) -> None:
    gates = [asyncio.Event() for _ in range(4)]

    async def slow(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        for gate in gates:
            await gate.wait()
            await connection.send(event("1"))
        await connection.send(LAST_CHUNK)

    fake = FakeReplica(slow)
    async with fake, a_rig(fake, start_front, idle=0.5) as rig:
        client = await rig.connect()
        await client.send(chat())
        await client.head()
        for number, gate in enumerate(gates):
            await asyncio.sleep(0.2)
            gate.set()
            await client.wire.expect(event("1") * (number + 1))
        await client.wire.expect(LAST_CHUNK)
        assert rig.error is None


async def test_comments_stop_with_the_answer(start_front: StartFront) -> None:
    gate = asyncio.Event()
    fake = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    async with fake, a_rig(fake, start_front, sse_keepalive=0.03) as rig:
        client = await rig.connect()
        await client.send(chat())
        await client.wire.expect(COMMENT + COMMENT)
        gate.set()
        await client.wire.expect(LAST_CHUNK)
        await eventually(lambda: rig.connections == (1, 0), "the attempt has ended")
        count = client.wire.count_received
        await asyncio.sleep(0.15)
        assert client.wire.count_received == count
