"""A tunnel between a raw client and a raw replica: every byte both ways, and every way to end."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from replicarouter.errors import ReplicaDisconnected, RouterError, SilentSession
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.tunnel import FLUSH, LOOK_FOR_CLIENT, Tunnel
from tests.fakes.client import Client
from tests.fakes.replica import Connection, FakeReplica
from tests.fakes.websocket import SWITCHING, close_frame, echo, frame, handshake, session
from tests.fakes.wire import DEADLINE, Ending, eventually
from tests.proxy.conftest import Front, StartFront
from tests.proxy.rig import joined, upstream_for
from tests.scene import an_exchange

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
PROMPT = 2.5
"""Seconds; five times what an end may take to reach the other side."""

BUFFERED = 1 << 20
"""Most bytes that one direction may hold in this process."""


@dataclass(slots=True, eq=False)
class Rig:
    """A front server that makes a tunnel of each request; `ends` is how they ended, None in order."""

    replica: FakeReplica
    front: Front
    tunnels: list[Tunnel] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    requests: list[InboundRequest] = field(default_factory=list)
    links: list[Any] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    ends: list[BaseException | None] = field(default_factory=list)

    async def connect(self, early: bytes = b"", *, receive_buffer: int | None = None) -> Client:
        """A client whose session has begun."""
        client = await self.front.connect(receive_buffer=receive_buffer)
        await client.send(handshake() + early)
        assert (await client.head()).status == 101
        return client

    async def wire(self) -> Any:
        """The replica's end of the only session."""
        await self.replica.received()
        return self.replica.used_connections[0].wire

    async def ended(self, deadline: float = PROMPT) -> BaseException | None:
        """Wait for the end of the only session."""
        await eventually(lambda: self.ends, "the session ends", deadline=deadline)
        return self.ends[0]

    def unwritten(self) -> int:
        """Bytes held for either side."""
        transports = (self.links[0].transport, self.requests[0].client.transport)
        return max(one.get_write_buffer_size() for one in transports if one is not None)


@asynccontextmanager
async def a_rig(
    start_front: StartFront,
    talk: Callable[[Connection], Any] | None = None,
    *,
    idle: float = 0.0,
    rest: bytes = b"",
    **options: Any,
) -> AsyncIterator[Rig]:
    """The tunnel's two ends; the replica talks as told once the request has come."""
    loop = asyncio.get_running_loop()
    ledger = Ledger()
    upstream = upstream_for(ledger)
    async with FakeReplica(session(talk, b"")) as fake:
        replica = joined(ledger, fake)

        async def handle(request: InboundRequest) -> bool:
            exchange = an_exchange(head_at=loop.time())
            caller = Caller(request.client, modern=True, keep_alive=False)
            link = await upstream.open(replica, exchange)
            done = loop.create_future()
            tunnel = Tunnel(link, caller, exchange, done, clock=loop.time, idle=idle)
            end: BaseException | None = None
            try:
                assert link.transport is not None
                link.transport.write(handshake())
                tunnel.begin(SWITCHING, rest)
                rig.tunnels.append(tunnel)
                rig.exchanges.append(exchange)
                rig.requests.append(request)
                rig.links.append(link)
                rig.tasks.append(asyncio.current_task())
                await done
            except (RouterError, ClientLeft, asyncio.CancelledError) as error:
                end = error
                if isinstance(error, asyncio.CancelledError):
                    raise
            finally:
                link.end(reusable=False)
                rig.ends.append(end)
                assert tunnel.ended
            return False

        rig = Rig(fake, await start_front(handle, **options))
        try:
            yield rig
        finally:
            for client in rig.front.clients:
                await client.closed()
            await rig.front.server.shutdown(1.0)
            await upstream.close()
        assert len(rig.ends) == len(rig.tunnels)
    assert ledger.connections_of(replica.row).open == 0


# Bytes


async def test_bytes_pass_both_ways_as_they_are(start_front: StartFront) -> None:
    said = random.Random(7).randbytes(3_000_000)
    async with a_rig(start_front, echo) as rig:
        client = await rig.connect()
        sending = asyncio.ensure_future(
            client.send(
                said,
            )
        )
        assert await client.wire.read_exactly(len(said)) == said
        await sending
        assert (await rig.wire()).count_received == len(handshake()) + len(said)
        assert (rig.exchanges[0].bytes_in, rig.exchanges[0].bytes_out) == (len(said), len(said))


async def test_single_bytes_pass_at_once(start_front: StartFront) -> None:
    async with a_rig(start_front, echo) as rig:
        client = await rig.connect()
        for number in range(50):
            await client.send(bytes((number,)))
            assert await client.wire.read_exactly(1) == bytes((number,))


async def test_what_comes_early_is_passed_on_first(start_front: StartFront) -> None:
    async with a_rig(start_front, echo, rest=b"from the replica") as rig:
        client = await rig.connect(early=b"GET / HTTP/1.1\r\n\r\nearly ")
        await client.send(b"late")
        expected = b"from the replica" + b"GET / HTTP/1.1\r\n\r\nearly late"
        assert await client.wire.read_exactly(len(expected)) == expected


async def test_more_than_a_buffer_of_early_bytes_is_not_lost(start_front: StartFront) -> None:
    early = random.Random(8).randbytes(2_000_000)
    async with a_rig(start_front, echo, read_bufsize=4096) as rig:
        client = await rig.front.connect()
        sending = asyncio.ensure_future(client.send(handshake() + early))
        assert (await client.head()).status == 101
        assert await client.wire.read_exactly(len(early)) == early
        await sending


# Ends


async def say(connection: Connection, said: bytes, how: Ending) -> None:
    await connection.wire.until(lambda: connection.wire.count_received > len(handshake()), "the client")
    await connection.send(said)
    if how == "fin":
        connection.wire.close()
    else:
        connection.wire.reset()


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("by", ["replica", "client"])
async def test_a_replica_that_ends_behind_a_close_frame_ends_in_order(
    start_front: StartFront, by: str, how: Ending
) -> None:
    last = close_frame() if by == "replica" else frame(b"last words")

    async def talk(connection: Connection) -> None:
        await say(connection, last, how)

    async with a_rig(start_front, talk) as rig:
        client = await rig.connect()
        await client.send(close_frame(masked=True) if by == "client" else frame(masked=True))
        assert await rig.ended() is None
        assert await client.gone(PROMPT) == "fin"
        if how == "fin":
            assert await client.wire.read_to_end() == last


@pytest.mark.parametrize("how", ENDINGS)
async def test_a_replica_that_ends_without_one_has_disconnected(start_front: StartFront, how: Ending) -> None:
    async def talk(connection: Connection) -> None:
        await say(connection, frame(b"last words"), how)

    async with a_rig(start_front, talk) as rig:
        client = await rig.connect()
        await client.send(frame(masked=True))
        assert isinstance(await rig.ended(), ReplicaDisconnected)
        await client.gone(PROMPT)
        if how == "fin":
            assert await client.wire.read_to_end() == frame(b"last words")


@pytest.mark.parametrize("how", [*ENDINGS, "half"])
@pytest.mark.parametrize("closing", [False, True])
async def test_a_client_that_ends_is_gone_or_has_closed(
    start_front: StartFront, how: Any, closing: bool
) -> None:
    last = close_frame(masked=True) if closing else frame(b"hello", masked=True)
    async with a_rig(start_front) as rig:
        client = await rig.connect()
        wire = await rig.wire()
        await client.send(last)
        if how == "rst":
            await wire.expect(last)
        if how == "half":
            client.wire.half_close()
        else:
            client.leave(how)
        await wire.gone(PROMPT)
        end = await rig.ended()
        assert (end is None) if closing else isinstance(end, ClientLeft)
        if how != "rst":
            assert await wire.read_to_end() == last
        if how == "half":
            await client.gone(PROMPT)


async def test_the_last_words_of_a_replica_reach_a_client_that_goes_on_talking(
    start_front: StartFront,
) -> None:
    """Closing on bytes that nobody has read would reset the connection, and destroy what was written."""
    last = frame(b"x" * 100_000) + close_frame()

    async def talk(connection: Connection) -> None:
        await say(connection, last, "fin")

    async with a_rig(start_front, talk) as rig:
        client = await rig.connect()
        client.wire.pause()
        await client.send(frame(masked=True))
        assert await rig.ended() is None
        for _ in range(20):
            await client.send(frame(b"talk " * 200, masked=True))
        client.wire.resume()
        assert await client.wire.read_to_end() == last
        assert client.wire.ending == "fin"


async def test_a_client_that_does_not_leave_in_the_end_is_closed(start_front: StartFront) -> None:
    async def talk(connection: Connection) -> None:
        await say(connection, close_frame(), "fin")

    async with a_rig(start_front, talk, lingering_time=0.1) as rig:
        client = await rig.connect()
        await client.send(frame(masked=True))
        await client.gone(PROMPT)
        await eventually(lambda: not rig.front.connections, "nothing is left of it")


async def test_a_handler_that_is_stopped_ends_both_sides(start_front: StartFront) -> None:
    async with a_rig(start_front, echo) as rig:
        client = await rig.connect()
        wire = await rig.wire()
        rig.tasks[0].cancel()
        await wire.gone(PROMPT)
        await client.gone(PROMPT)
        assert isinstance(await rig.ended(), asyncio.CancelledError)


async def test_a_client_that_has_left_before_the_session_begins_has_left(start_front: StartFront) -> None:
    begun = asyncio.Event()

    async def wait(connection: Connection) -> None:
        begun.set()
        await connection.wire.gone(DEADLINE)

    async with a_rig(start_front, wait) as rig:
        client = await rig.front.connect()
        await client.send(handshake())
        client.leave("rst")
        await eventually(lambda: rig.ends or not rig.front.connections, "it is noticed")
        await eventually(lambda: len(rig.ends) == len(rig.tunnels), "its session has ended")


# Buffers and time


async def flood(connection: Connection) -> None:
    """Write without end."""
    while True:
        await connection.send(bytes(65536))


async def test_a_client_that_does_not_read_holds_the_replica(start_front: StartFront) -> None:
    async with a_rig(start_front, flood) as rig:
        client = await rig.connect(receive_buffer=65536)
        client.wire.pause()
        wire = await rig.wire()
        await eventually(lambda: wire.write_blocked, "the replica is held")
        await asyncio.sleep(0.1)
        assert rig.unwritten() < BUFFERED
        assert wire.write_blocked
        got = client.wire.count_received
        client.wire.resume()
        await eventually(lambda: client.wire.count_received > got + 30_000_000, "it goes on")


async def test_a_replica_that_does_not_read_holds_the_client(start_front: StartFront) -> None:
    resume = asyncio.Event()
    said = random.Random(9).randbytes(20_000_000)

    async def talk(connection: Connection) -> None:
        connection.wire.pause()
        await resume.wait()
        connection.wire.resume()
        await connection.wire.until(
            lambda: connection.wire.count_received == len(handshake()) + len(said), "all of it"
        )
        await connection.send(frame(b"thanks"))

    async with a_rig(start_front, talk) as rig:
        client = await rig.connect()
        sending = asyncio.ensure_future(client.send(said))
        await eventually(lambda: client.wire.write_blocked, "the client is held")
        await asyncio.sleep(0.1)
        assert not sending.done()
        assert rig.unwritten() < BUFFERED
        resume.set()
        await sending
        assert await client.wire.read_exactly(len(frame(b"thanks"))) == frame(b"thanks")
        assert rig.replica.used_connections[0].wire.unread == said


async def read_nothing(connection: Connection) -> None:
    connection.wire.pause()
    await asyncio.Event().wait()


async def test_a_held_client_that_leaves_is_noticed(start_front: StartFront) -> None:
    async with a_rig(start_front, read_nothing) as rig:
        client = await rig.connect()
        await rig.wire()
        client.wire.transport.write(bytes(20_000_000))
        await eventually(lambda: client.wire.write_blocked, "the client is held")
        await eventually(lambda: rig.unwritten() > 65536, "so is what it said")
        client.leave("rst")
        assert isinstance(await rig.ended(5 * (LOOK_FOR_CLIENT + FLUSH)), ClientLeft)


async def test_the_last_words_of_a_client_reach_a_replica_that_is_slow(start_front: StartFront) -> None:
    resume = asyncio.Event()

    async def talk(connection: Connection) -> None:
        connection.wire.pause()
        await resume.wait()
        connection.wire.resume()

    async with a_rig(start_front, talk) as rig:
        client = await rig.connect()
        asked = client.wire.count_written
        wire = await rig.wire()
        exchange = rig.exchanges[0]
        while not rig.unwritten():
            await client.send(bytes(16384))
            await eventually(lambda: exchange.bytes_in == client.wire.count_written - asked, "it is taken")
        await client.send(close_frame(masked=True))
        client.leave()
        upstream = rig.links[0].transport
        await eventually(upstream.is_closing, "the end is noticed")
        resume.set()
        await wire.gone(PROMPT)
        assert wire.count_received == client.wire.count_written
        assert wire.ending == "fin"
        assert await rig.ended() is None


async def test_a_replica_that_does_not_read_cannot_hold_up_the_end(start_front: StartFront) -> None:
    async with a_rig(start_front, read_nothing) as rig:
        client = await rig.connect()
        await rig.wire()
        while not rig.unwritten():
            await client.send(bytes(65536))
            await asyncio.sleep(0)
        client.leave()
        assert isinstance(await rig.ended(5 * (LOOK_FOR_CLIENT + FLUSH)), ClientLeft)


async def test_a_client_that_takes_nothing_for_too_long_is_gone(start_front: StartFront) -> None:
    async with a_rig(start_front, flood, write_timeout=0.1) as rig:
        client = await rig.connect(receive_buffer=65536)
        client.wire.pause()
        assert isinstance(await rig.ended(), ClientLeft)
        await (await rig.wire()).gone(PROMPT)


async def test_silence_on_both_sides_ends_a_session(start_front: StartFront) -> None:
    async with a_rig(start_front, idle=0.2) as rig:
        client = await rig.connect()
        assert isinstance(await rig.ended(), SilentSession)
        await client.gone(PROMPT)
        await (await rig.wire()).gone(PROMPT)


@pytest.mark.parametrize("by", ["replica", "client"])
async def test_a_byte_of_either_side_breaks_the_silence(start_front: StartFront, by: str) -> None:
    async with a_rig(start_front, idle=0.5) as rig:
        client = await rig.connect()
        wire = await rig.wire()
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 1.2:
            await (wire if by == "replica" else client.wire).send(frame(b"", 9, masked=by == "client"))
            await asyncio.sleep(0.02)
        assert rig.ends == []
        assert isinstance(await rig.ended(), SilentSession)


async def test_a_client_that_takes_nothing_is_not_silence(start_front: StartFront) -> None:
    async with a_rig(start_front, flood, idle=0.1) as rig:
        client = await rig.connect(receive_buffer=65536)
        client.wire.pause()
        wire = await rig.wire()
        await eventually(lambda: wire.write_blocked, "the replica is held")
        await asyncio.sleep(0.4)
        assert rig.ends == []
