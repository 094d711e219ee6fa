"""Sending past a transport: in order, whole, and never to a connection that has come in its place."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from replicarouter.proxy.aiohttp_connector import ReplicaConnection
from replicarouter.proxy.straight import straight_to, write
from tests.fakes.certificates import Authority, trusting
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront

Ends = tuple[asyncio.Transport, socket.socket, socket.socket]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """A connection: the transport of one end and the way past it, and the socket of the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        loop = asyncio.get_running_loop()
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, near)
        straight = straight_to(transport)
        assert straight is not None
        with far:
            yield transport, straight, far
        straight.detach()
        transport.abort()


async def received(far: socket.socket, size: int) -> bytes:
    far.setblocking(False)
    got = b""
    async with asyncio.timeout(10):
        while len(got) < size:
            got += await asyncio.get_running_loop().sock_recv(far, 1 << 20)
    return got


async def test_bytes_are_out_before_the_turn_of_the_loop_ends(ends: Ends) -> None:
    transport, straight, far = ends
    write(transport, straight, b"at once")
    assert far.recv(64) == b"at once"


async def test_what_does_not_go_at_once_follows_in_order(ends: Ends) -> None:
    transport, straight, far = ends
    pieces = [bytes([number]) * 300_000 for number in range(64)]
    for piece in pieces:
        write(transport, straight, piece)
    assert transport.get_write_buffer_size() > 0
    assert await received(far, 64 * 300_000) == b"".join(pieces)
    assert transport.get_write_buffer_size() == 0
    write(transport, straight, b"again")
    assert await received(far, 5) == b"again"


async def test_nothing_overtakes_what_the_transport_holds(ends: Ends) -> None:
    transport, straight, far = ends
    transport.write(b"first, ")
    write(transport, straight, b"second, ")
    transport.write(b"third")
    assert await received(far, 20) == b"first, second, third"


async def test_a_lost_connection_is_let_go_before_its_descriptor_is() -> None:
    """Its number may be another connection's right after."""
    loop = asyncio.get_running_loop()
    seen: list[tuple[int, bool]] = []

    class Observed(ReplicaConnection):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            assert straight is not None
            seen.append((straight.fileno(), stat.S_ISSOCK(os.fstat(number).st_mode)))

    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
        transport, protocol = await loop.connect_accepted_socket(lambda: Observed(loop), near)
        straight = protocol.straight()
        assert straight is not None
        assert protocol.straight() is straight
        number = straight.fileno()
        far.close()
        await eventually(lambda: bool(seen), "it is lost")
    assert seen == [(-1, True)]
    with suppress(RuntimeError):  # uvloop's transports raise it.
        write(transport, straight, b"of another")


async def test_so_it_is_with_a_client(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    await client.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(front.seen) == 1, "it has asked")
    connection = front.seen[0].client
    straight = connection.straight()
    assert straight is not None
    client.leave()
    await eventually(lambda: connection.transport is None, "it is lost")
    assert straight.fileno() == -1


async def test_what_has_come_can_be_read_before_the_transport_does(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    await client.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: [one for one in front.connections if one.idle], "it was answered")
    connection = front.seen[0].client
    assert connection.unread() == b""
    assert connection.straight() is not None
    assert connection.unread() == b""
    await client.send(b"next")
    assert connection.unread() == b"next"
    assert connection.unread() == b""
    client.leave()
    assert connection.unread() == b""
    await eventually(lambda: connection.transport is None, "it is lost")
    assert connection.unread() == b""


async def test_nothing_goes_past_tls(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    server = await loop.create_server(Accepting, "127.0.0.1", 0, ssl=pair.server())
    client, _ = await loop.create_connection(
        asyncio.Protocol, *server.sockets[0].getsockname(), ssl=trusting(pair.cert)
    )
    assert straight_to(client) is None
    assert straight_to(await accepted) is None
    assert straight_to(None) is None
    client.abort()
    server.close()
