"""An upload goes on as it came, can be begun again while little has gone, and lets go of all it held."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from replicarouter.errors import RequestTimeout
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.headers import UNKNOWN
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.arriving import Arriving
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.spool import IN_MEMORY
from replicarouter.proxy.upload import REPEATABLE, Upload
from replicarouter.proxy.upstream import Link, Upstream
from tests.fakes.client import Client, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import Connection, FakeReplica, Received
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront, answer
from tests.proxy.rig import joined, upstream_for
from tests.scene import an_exchange

HEAD = b"POST /x HTTP/1.1\r\nHost: replica\r\n\r\n"


class Deaf:
    """A receiver that only notes the end of its connection."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done

    def feed(self, data: bytes) -> None:
        raise AssertionError(data)

    def lost(self, error: BaseException | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def take_everything(received: Received, connection: Connection) -> None:
    """What comes stays unread, where tests look at it."""
    await connection.wire.gone(3600)
    connection.wire.unread.clear()


@dataclass(slots=True, eq=False)
class Stage:
    """An upload from a real client, and links to a real replica."""

    upload: Upload
    client: Client
    memory: BodyMemory
    upstream: Upstream
    replica: FakeReplica
    view: Replica
    links: list[Link] = field(default_factory=list)
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def pump(self) -> None:
        """Over a connection of its own, as an attempt does."""
        link = await self.upstream.open(self.view, an_exchange(), fresh=True)
        self.links.append(link)
        link.send(Deaf(self.done), HEAD, self.upload.data)
        await self.upload.pump(link, self.done)

    def arrived(self, number: int = 0) -> bytes:
        """What the replica has of the body, framing included."""
        used = self.replica.used_connections
        return bytes(used[number].wire.unread) if len(used) > number else b""


Begin = Callable[..., Awaitable[Stage]]


@pytest_asyncio.fixture
async def begin(start_front: StartFront) -> AsyncIterator[Begin]:
    stages: list[Stage] = []
    finish = asyncio.Event()

    async def start(raw: bytes, *, room: int = 10 * IN_MEMORY, gap: float = 5.0) -> Stage:
        made: list[Upload] = []
        memory, ledger = BodyMemory(room), Ledger()

        async def handle(one: InboundRequest) -> bool:
            arriving = Arriving(one, most=10**9, gap=gap)
            made.append(Upload(arriving, memory, an_exchange(), asyncio.get_running_loop().time))
            await finish.wait()
            return answer(one)

        front = await start_front(handle, lingering_time=0.1)
        client = await front.connect()
        await client.send(raw)
        await eventually(lambda: made, "the head has come")
        replica = FakeReplica(take_everything, read_bodies=False)
        await replica.listen()
        view = joined(ledger, replica)
        stages.append(Stage(made[0], client, memory, upstream_for(ledger), replica, view))
        return stages[-1]

    yield start
    for stage in stages:
        stage.upload.drop()
        for link in stage.links:
            link.end(reusable=False)
        await stage.upstream.close()
        await stage.replica.stop()
        assert stage.memory.held == 0
    finish.set()


def declared(size: int, body: bytes = b"") -> bytes:
    return request("POST", "/x", headers={"Content-Length": str(size)}) + body


CHUNKED = request("POST", "/x", headers={"Transfer-Encoding": "chunked"})


async def test_a_declared_body_goes_on_as_it_came(begin: Begin) -> None:
    stage = await begin(declared(10, b"01234"))
    assert (stage.upload.length, stage.upload.sent) == (10, False)
    async with asyncio.timeout(5):
        pumping = asyncio.gather(stage.pump(), stage.client.send(b"56789"))
        await pumping
    await eventually(lambda: stage.arrived() == b"0123456789", "all of it has arrived")
    assert (stage.upload.sent, stage.upload.replayable) == (True, True)


async def test_each_read_of_a_chunked_body_is_a_chunk(begin: Begin) -> None:
    stage = await begin(CHUNKED)
    assert stage.upload.length == UNKNOWN
    pumping = asyncio.gather(stage.pump())
    await stage.client.send(chunk(b"one"))
    await eventually(lambda: stage.arrived() == chunk(b"one"), "the first has arrived")
    await stage.client.send(chunk(b"two"))
    await eventually(lambda: stage.arrived() == chunk(b"one") + chunk(b"two"), "the second has arrived")
    await stage.client.send(LAST_CHUNK)
    await pumping
    assert stage.upload.sent
    await eventually(lambda: stage.arrived() == chunk(b"one") + chunk(b"two") + LAST_CHUNK, "all of it")


async def test_it_can_be_begun_again_while_little_has_gone(begin: Begin) -> None:
    stage = await begin(declared(REPEATABLE, b"x" * 1000))
    pumping = asyncio.gather(stage.pump())
    await eventually(lambda: len(stage.arrived()) == 1000, "the beginning has arrived")
    stage.done.set_result(None)
    await pumping
    assert (stage.upload.sent, stage.upload.replayable) == (False, True)

    stage.done = asyncio.get_running_loop().create_future()
    again = asyncio.gather(stage.pump())
    await stage.client.send(b"y" * (REPEATABLE - 1000))
    await again
    whole = b"x" * 1000 + b"y" * (REPEATABLE - 1000)
    await eventually(lambda: stage.arrived(1) == whole, "all of it has arrived")
    assert (stage.upload.sent, stage.upload.replayable) == (True, True)
    assert stage.memory.held == REPEATABLE


async def test_it_cannot_be_begun_again_when_much_has_gone(begin: Begin) -> None:
    size = 3 * REPEATABLE
    stage = await begin(declared(size + 1))
    pumping = asyncio.gather(stage.pump())
    await stage.client.send(b"x" * size)
    await eventually(lambda: len(stage.arrived()) == size, "much has arrived")
    assert (stage.upload.replayable, stage.memory.held) == (False, 0)
    stage.done.set_result(None)
    await pumping


async def test_it_cannot_be_begun_again_when_there_was_no_memory_for_it(begin: Begin) -> None:
    stage = await begin(declared(10), room=5)
    pumping = asyncio.gather(stage.pump())
    await stage.client.send(b"x" * 9)
    await eventually(lambda: len(stage.arrived()) == 9, "it has arrived")
    assert not stage.upload.replayable
    stage.done.set_result(None)
    await pumping


@pytest.mark.parametrize("size", [1000, IN_MEMORY + 1000])
async def test_what_came_before_its_model_is_sent_first(begin: Begin, size: int) -> None:
    form = b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n" + b"x" * size
    form += b"\r\n--b\r\ncontent-disposition: form-data; name=model\r\n\r\nm1\r\n--b"
    stage = await begin(declared(len(form) + 6))
    finding = asyncio.gather(stage.upload.find_model())
    await stage.client.send(form)
    (found,) = await finding
    assert found.model == "m1"
    assert stage.upload.replayable
    pumping = asyncio.gather(stage.pump())
    await stage.client.send(b"--\r\n\r\n")
    await pumping
    await eventually(lambda: stage.arrived() == form + b"--\r\n\r\n", "all of it has arrived")
    assert stage.upload.replayable == (size > IN_MEMORY or len(form) < REPEATABLE)


async def test_the_length_of_a_chunked_body_that_has_ended_is_known(begin: Begin) -> None:
    stage = await begin(CHUNKED + chunk(b"--b--\r\n") + LAST_CHUNK)
    await stage.upload.find_model()
    assert stage.upload.length == 7
    await stage.pump()
    await eventually(lambda: stage.arrived() == b"--b--\r\n", "it has arrived, without chunks")


async def test_stopping_ends_it_without_an_error(begin: Begin) -> None:
    stage = await begin(declared(10, b"01234"))
    pumping = asyncio.gather(stage.pump())
    await eventually(lambda: stage.arrived() == b"01234", "the beginning has arrived")
    stage.upload.stop()
    await pumping
    stage.upload.stop()
    assert not stage.upload.sent


async def test_silence_of_the_client_is_an_error_and_no_end(begin: Begin) -> None:
    stage = await begin(CHUNKED + chunk(b"some"), gap=0.1)
    with pytest.raises(RequestTimeout):
        await stage.pump()
    assert not stage.upload.sent
    assert stage.arrived() == chunk(b"some")


async def test_a_replica_that_has_gone_gets_nothing(begin: Begin) -> None:
    stage = await begin(declared(10, b"01234"))
    pumping = asyncio.gather(stage.pump())
    await eventually(lambda: stage.arrived() == b"01234", "the beginning has arrived")
    stage.replica.reset_all()
    await asyncio.wait_for(pumping, 5)
    assert not stage.upload.sent


async def test_what_was_dropped_is_not_kept_again(begin: Begin) -> None:
    stage = await begin(declared(10, b"01234"))
    pumping = asyncio.gather(stage.pump())
    await eventually(lambda: stage.arrived() == b"01234", "the beginning has arrived")
    stage.upload.drop()
    await stage.client.send(b"56789")
    await pumping
    await eventually(lambda: stage.arrived() == b"0123456789", "all of it has arrived")
    assert (stage.upload.sent, stage.upload.replayable, stage.memory.held) == (True, False, 0)


async def test_the_end_of_one_attempt_does_not_stop_the_next(begin: Begin) -> None:
    stage = await begin(declared(5, b"01234"))
    first, second = [await stage.upstream.open(stage.view, an_exchange(), fresh=True) for _ in range(2)]
    stage.links += [first, second]
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def twice() -> None:
        await stage.upload.pump(first, ended)
        await stage.upload.pump(second, stage.done)

    first.protocol.pause_writing()
    second.protocol.pause_writing()
    pumping = asyncio.ensure_future(twice())
    await eventually(lambda: first.protocol.on_writable, "the first waits for its replica")
    # In one turn: its body is out, and its attempt is over.
    first.protocol.resume_writing()
    ended.set_result(None)
    await eventually(lambda: second.protocol.on_writable, "the second waits for its replica")
    second.protocol.resume_writing()
    await pumping
    assert stage.upload.sent
