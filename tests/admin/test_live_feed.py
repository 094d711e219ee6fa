"""The feed over real sockets: one document for all, at most so many viewers, nobody waits for a slow one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr

from replicarouter.admin.live_feed import MOST_VIEWERS, LiveFeed
from replicarouter.errors import Overloaded
from replicarouter.settings import AdminSettings
from tests.admin.conftest import Open
from tests.fakes.client import HOST, Client, request
from tests.fakes.wire import eventually

PERIOD = 0.02


@dataclass(slots=True, eq=False)
class Station:
    """A feed at a port of its own; `drawn` documents were made, each `size` bytes long or more."""

    size: int = 0
    drawn: int = 0
    begun: int = 0
    refused: int = 0
    port: int = 0
    feed: LiveFeed = field(init=False)

    def draw(self) -> bytes:
        self.drawn += 1
        return b'{"n":%d}' % self.drawn + b" " * self.size

    def begin(self) -> None:
        self.begun += 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self.feed.watch(request)
        except Overloaded:
            self.refused += 1
            return web.Response(status=503)

    async def viewer(self, *, receive_buffer: int | None = None) -> Client:
        client = await Client.connect(self.port, receive_buffer=receive_buffer)
        await client.send(request("GET", "/"))
        return client


Broadcast = Callable[..., Awaitable[Station]]


@pytest_asyncio.fixture
async def broadcast() -> AsyncIterator[Broadcast]:
    runners: list[web.AppRunner] = []

    async def start(*, size: int = 0, **options: Any) -> Station:
        station = Station(size)
        station.feed = LiveFeed(station.draw, station.begin, period=PERIOD, **options)
        application = web.Application()
        application.router.add_get("/", station.answer)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        station.port = runner.addresses[0][1]
        return station

    yield start
    for runner in runners:
        await runner.cleanup()


def ticking() -> bool:
    return any(task.get_name() == "status page" for task in asyncio.all_tasks())


def seen(client: Client) -> int:
    """How many documents have come."""
    return bytes(client.wire.unread).count(b"data: ")


async def has_seen(client: Client, count: int) -> None:
    await eventually(lambda: seen(client) >= count, f"{count} documents")


async def test_a_viewer_gets_document_after_document(broadcast: Broadcast) -> None:
    station = await broadcast()
    client = await station.viewer()
    head = await client.head()
    assert head.get("Content-Type") == "text/event-stream; charset=utf-8"
    assert head.get("Cache-Control") == "no-store"
    await has_seen(client, 3)
    unread = bytes(client.wire.unread)
    assert unread.index(b'data: {"n":1}\n\n') < unread.index(b'data: {"n":2}\n\n') < unread.index(b'{"n":3}')
    await client.closed()


async def test_all_viewers_get_the_same_document_and_it_is_made_once(broadcast: Broadcast) -> None:
    station = await broadcast()
    clients = [await station.viewer() for _ in range(5)]
    for client in clients:
        await has_seen(client, 3)
    # The one that came first has seen them all, give or take those on their way.
    assert max(map(seen, clients)) <= station.drawn <= max(map(seen, clients)) + 2
    assert station.begun == 1
    for client in clients:
        await client.closed()


async def test_nothing_is_made_while_nobody_looks(broadcast: Broadcast) -> None:
    station = await broadcast()
    assert not ticking()
    client = await station.viewer()
    await has_seen(client, 1)
    assert ticking()
    await client.closed()
    await eventually(lambda: not ticking(), "the clock of the feed has stopped")
    again = await station.viewer()
    await has_seen(again, 2)
    assert station.begun == 2
    await again.closed()


async def test_one_viewer_too_many_is_told(broadcast: Broadcast) -> None:
    station = await broadcast()
    clients = [await station.viewer() for _ in range(MOST_VIEWERS)]
    for client in clients:
        await has_seen(client, 1)
    late = await station.viewer()
    assert (await late.answer()).status == 503
    assert station.feed.viewers == MOST_VIEWERS
    await clients[0].closed()
    await eventually(lambda: station.feed.viewers < MOST_VIEWERS, "one has left")
    next_one = await station.viewer()
    await has_seen(next_one, 1)
    for client in (late, next_one, *clients[1:]):
        await client.closed()


async def test_a_viewer_that_takes_nothing_is_dropped_and_holds_up_nobody(broadcast: Broadcast) -> None:
    station = await broadcast(size=400_000, takes=0.3)
    idle = await station.viewer(receive_buffer=4096)
    idle.wire.transport.pause_reading()
    reader = await station.viewer()
    await has_seen(reader, 5)
    await eventually(lambda: station.feed.viewers == 1, "the idle one is dropped")
    before = seen(reader)
    await has_seen(reader, before + 2)
    await idle.closed()
    await reader.closed()


async def test_the_end_of_the_router_ends_the_feed(broadcast: Broadcast) -> None:
    station = await broadcast()
    client = await station.viewer()
    await has_seen(client, 1)
    await station.feed.close()
    await eventually(lambda: bytes(client.wire.unread).endswith(b"0\r\n\r\n"), "the answer ends")
    await client.closed()


async def test_a_document_that_fails_is_logged_and_the_next_is_sent(
    broadcast: Broadcast, caplog: pytest.LogCaptureFixture
) -> None:
    station = await broadcast()
    good = station.draw

    def odd() -> bytes:
        if station.drawn == 1:
            station.drawn += 1
            raise ValueError("a fault of ours")
        return good()

    station.feed._draw = odd
    client = await station.viewer()
    await has_seen(client, 3)
    assert "background turn failed" in caplog.text
    caplog.clear()
    await client.closed()


async def test_another_token_ends_the_feeds_that_the_old_one_opened(open_door: Open) -> None:
    door = await open_door(token="old", port=1)
    client = await Client.connect(door.port)
    await client.send(request("GET", "/admin/live", headers={"Authorization": "Bearer old"}))
    await eventually(lambda: b'"replicas":' in client.wire.unread, "a document comes")
    door.api.reconfigure(AdminSettings(token=SecretStr("old"), port=2))
    before = seen(client)
    await has_seen(client, before + 1)
    door.api.reconfigure(AdminSettings(token=SecretStr("new"), port=2))
    await eventually(lambda: bytes(client.wire.unread).endswith(b"0\r\n\r\n"), "the answer ends")
    await client.closed()


async def test_a_head_request_holds_no_place(open_door: Open) -> None:
    door = await open_door()
    client = await Client.connect(door.port)
    await client.send(request("HEAD", "/admin/live"))
    await eventually(lambda: bytes(client.wire.unread).startswith(b"HTTP/1.1 405 "), "it is refused")
    await client.closed()
