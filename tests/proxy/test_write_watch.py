"""A client that takes nothing is closed, one that takes a little is not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from replicarouter.proxy.write_watch import WriteWatch, untaken, unwritten
from tests.fakes.certificates import Authority, trusting
from tests.fakes.client import HOST, Client
from tests.fakes.wire import Wire, eventually

MUCH = 16 << 20
"""Bytes that no pair of socket buffers takes at once."""


@asynccontextmanager
async def a_full_buffer() -> AsyncIterator[tuple[Wire, socket.socket]]:
    """Our end of a connection whose peer has read nothing of much, and the peer."""
    accepted: list[Wire] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Wire(accepted.append), HOST, 0)
    with socket.create_connection(server.sockets[0].getsockname()) as peer:
        peer.setblocking(False)
        await eventually(lambda: accepted, "it is connected")
        accepted[0].transport.write(bytes(MUCH))
        yield accepted[0], peer
        accepted[0].transport.abort()
    server.close()


async def test_bytes_in_both_buffers_are_untaken() -> None:
    async with a_full_buffer() as (wire, peer):
        await eventually(lambda: untaken(wire.transport) < MUCH, "the peer's kernel has some")
        before = untaken(wire.transport)
        assert before > wire.transport.get_write_buffer_size() > 0
        while untaken(wire.transport) >= before:
            assert await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
        assert not wire.closed


async def test_who_takes_nothing_is_closed() -> None:
    async with a_full_buffer() as (wire, _):
        WriteWatch(0.1).start(wire.transport)
        await eventually(lambda: wire.closed, "it is closed")


async def test_who_takes_a_little_in_time_is_not_closed() -> None:
    loop = asyncio.get_running_loop()
    async with a_full_buffer() as (wire, peer):
        watch = WriteWatch(0.3)
        watch.start(wire.transport)
        for _ in range(5):
            before = untaken(wire.transport)
            while untaken(wire.transport) >= before:
                await loop.sock_recv(peer, 65536)
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)
        assert not wire.closed
        watch.stop()


async def test_a_watch_can_be_stopped_and_needs_no_limit() -> None:
    async with a_full_buffer() as (wire, _):
        stopped, endless = WriteWatch(0.1), WriteWatch(0)
        stopped.start(wire.transport)
        stopped.stop()
        endless.start(wire.transport)
        endless.stop()
        WriteWatch(0.1).start(None)
        await asyncio.sleep(0.3)
        assert not wire.closed


async def test_what_lies_below_a_tls_transport_counts_as_unwritten(tmp_path: Path) -> None:
    """Its own buffer is empty while the transport below still holds what the process must not take along."""
    pair = Authority(tmp_path).issue()
    loop = asyncio.get_running_loop()
    accepted: list[Wire] = []
    server = await loop.create_server(lambda: Wire(accepted.append), HOST, 0, ssl=pair.server())
    port = server.sockets[0].getsockname()[1]
    reader = await Client.connect(port, receive_buffer=16384, tls=trusting(pair.cert))
    await eventually(lambda: accepted, "it is connected")
    transport = accepted[0].transport
    await eventually(lambda: unwritten(transport) == 0, "the handshake is over")
    reader.wire.pause()
    transport.write(bytes(MUCH))
    await asyncio.sleep(0)
    assert transport.get_write_buffer_size() == 0
    assert unwritten(transport) > 0
    reader.wire.resume()
    await reader.wire.read_exactly(MUCH, deadline=20)
    await eventually(lambda: unwritten(transport) == 0, "all is taken")
    await reader.closed()
    transport.abort()
    server.close()


async def test_of_a_plain_transport_only_its_buffer_counts_as_unwritten() -> None:
    """What the kernel has, it delivers, whatever becomes of the process."""
    async with a_full_buffer() as (wire, _):
        assert unwritten(wire.transport) == wire.transport.get_write_buffer_size()
