"""The port lets clients in while there is room, and lets them wait while there is none."""

import logging
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.aiohttp_server import FrontServer, Handler
from replicarouter.proxy.descriptors import Descriptors
from replicarouter.proxy.entrance import Entrance
from tests.fakes.client import HOST, Client, request
from tests.fakes.wire import eventually
from tests.proxy.conftest import answer, hang

GET = request("GET", "/x")


class Scene:
    """An entrance with room for `most` clients; `outside` are descriptors that somebody else has."""

    def __init__(self, handler: Handler, most: int) -> None:
        self.front = FrontServer(handler, lambda *_: None, head_timeout=5, write_timeout=5, options={})
        self.outside = 0
        self.looks = 0
        descriptors = Descriptors(most)
        descriptors.count(self._look)
        self.entrance = Entrance(self.front, descriptors)
        self.clients: list[Client] = []

    def _look(self) -> int:
        self.looks += 1
        return self.outside

    async def connect(self) -> Client:
        self.clients.append(await Client.connect(self.entrance.port))
        return self.clients[-1]


async def at_once(one: InboundRequest) -> bool:
    return answer(one)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Whatever opens one fails, but nothing that is open is closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def a_scene(handler: Handler = at_once, *, most: int) -> AsyncIterator[Scene]:
    scene = Scene(handler, most)
    await scene.entrance.open(HOST, 0)
    try:
        yield scene
    finally:
        for client in scene.clients:
            await client.closed()
        await scene.entrance.close()
        await scene.front.shutdown(1.0)


async def test_a_client_is_let_in() -> None:
    async with a_scene(most=100) as scene:
        assert (await (await scene.connect()).ask(GET)).status == 200


async def test_whoever_has_no_room_waits_and_is_let_in_later() -> None:
    async with a_scene(hang, most=20) as scene:
        for _ in range(30):
            await (await scene.connect()).send(GET)
        await eventually(lambda: scene.front.in_use == 20, "it is full")
        with pytest.raises(AssertionError, match="not within"):
            await eventually(lambda: scene.front.in_use > 20, "more are let in", deadline=0.3)
        for client in scene.clients[:20]:
            await client.closed()
        await eventually(lambda: scene.front.in_use == 10, "the others are let in")


async def test_clients_that_idle_make_room() -> None:
    async with a_scene(most=20) as scene:
        for _ in range(20):
            assert (await (await scene.connect()).ask(GET)).status == 200
        assert (await (await scene.connect()).ask(GET)).status == 200
        assert await scene.clients[0].gone() == "fin"


async def test_descriptors_of_others_count(caplog: pytest.LogCaptureFixture) -> None:
    async with a_scene(hang, most=20) as scene:
        scene.outside = 19
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                await scene.connect()
            await eventually(lambda: scene.front.in_use == 1, "the first is let in")
            with pytest.raises(AssertionError, match="not within"):
                await eventually(lambda: scene.front.in_use > 1, "more are let in", deadline=0.3)
            scene.outside = 0
            await eventually(lambda: scene.front.in_use == 5, "all are let in")
    assert [record.message for record in caplog.records] == ["out of descriptors, clients wait"]


async def test_a_port_opens_again_although_there_was_no_descriptor_for_it() -> None:
    async with a_scene(most=20) as scene:
        scene.outside = 19
        first, second = await scene.connect(), await scene.connect()
        await eventually(lambda: scene.front.in_use == 1, "it is full")
        with no_descriptor_left():
            looks = scene.looks
            scene.outside = 0
            await eventually(lambda: scene.looks > looks + 3, "it tries again and again")
        assert (await first.ask(GET)).status == 200
        assert (await second.ask(GET)).status == 200


async def test_a_full_port_can_be_closed() -> None:
    async with a_scene(hang, most=16) as scene:
        for _ in range(17):
            await scene.connect()
        await eventually(lambda: scene.front.in_use == 16, "it is full")
        port = scene.entrance.port
        await scene.entrance.close()

    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)


async def test_a_port_that_is_taken_is_told() -> None:
    async with a_scene(most=20) as scene:
        other = Scene(at_once, 20)
        with pytest.raises(OSError, match="in use"):
            await other.entrance.open(HOST, scene.entrance.port)
        await other.entrance.close()
