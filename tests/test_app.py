"""The whole router, started and stopped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from replicarouter.app import Router
from replicarouter.settings import Settings
from tests.fakes.client import HOST, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held, reply, sized
from tests.fakes.running import StartRouter, free_port
from tests.fakes.wire import eventually

Start = Callable[..., Awaitable[Router]]


def settings(fake: FakeReplica, **options: object) -> Settings:
    values = {"port": 0, "admin": {"port": 0}, "replicas": [fake.settings], **options}
    return Settings.model_validate(values)


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Start a router in front of a replica that listens; both are stopped afterwards."""
    async with AsyncExitStack() as stack:

        async def one(fake: FakeReplica, **options: object) -> Router:
            if not fake.connections:
                await stack.enter_async_context(fake)
            router = Router(settings(fake, **options))
            await router.start()
            stack.push_async_callback(router.stop)
            return router

        yield one


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Connect to a router; all are gone afterwards."""
    clients: list[Client] = []

    async def one(router: Router, receive_buffer: int | None = None) -> Client:
        clients.append(await Client.connect(router.port, receive_buffer=receive_buffer))
        return clients[-1]

    yield one
    for client in clients:
        await client.closed()


Connect = Callable[..., Awaitable[Client]]


async def ask(port: int, raw: bytes) -> int:
    client = await Client.connect(port)
    try:
        return (await client.ask(raw)).status
    finally:
        await client.closed()


async def test_a_started_router_has_probed_its_replicas_and_serves(start: Start) -> None:
    router = await start(FakeReplica(), admin={"port": free_port()})

    assert await ask(router.port, request("GET", "/ready")) == 200
    assert await ask(router.admin_port, request("GET", "/admin/ledger")) == 200
    assert await ask(router.port, chat(stream=False)) == 200


async def test_an_admin_port_of_0_is_none(start: Start) -> None:
    assert (await start(FakeReplica())).admin_port == 0


async def test_two_routers_live_in_one_process(start: Start) -> None:
    fake = FakeReplica()
    one, other = await start(fake), await start(fake)
    assert await ask(one.port, chat(stream=False)) == 200

    assert one.ledger.received() == {"/v1/chat/completions": 1}
    assert other.ledger.received() == {}


@pytest.mark.parametrize("taken", ["port", "admin"])
async def test_a_taken_port_leaves_nothing_behind(start: Start, taken: str) -> None:
    fake = FakeReplica()
    first = await start(fake)
    free = free_port()
    ports = {"port": first.port} if taken == "port" else {"port": free, "admin": {"port": first.port}}
    with pytest.raises(OSError, match="in use"):
        await Router(settings(fake, **ports)).start()
    if taken == "admin":
        with pytest.raises(ConnectionRefusedError):
            await ask(free, request("GET", "/health"))

    assert await ask(first.port, request("GET", "/health")) == 200


async def test_a_stopped_router_refuses_and_cuts(start: Start, connect: Connect) -> None:
    fake = FakeReplica(held(SSE_HEAD + event("1"), asyncio.Event()))
    router = await start(fake)
    client = await connect(router)
    await client.send(chat())
    await client.wire.expect(b"data: 1")
    port = router.port
    await asyncio.wait_for(router.stop(), 5)

    await client.gone()
    await fake.requests[0].aborted()
    with pytest.raises(ConnectionRefusedError):
        await ask(port, request("GET", "/health"))
    assert list(router.ledger.cells) == [0] * len(router.ledger.cells)


async def test_stopping_twice_is_stopping_once(start: Start) -> None:
    router = await start(FakeReplica())
    await router.stop()
    await router.stop()

    assert router.ledger.received() == {}


# Draining


async def test_a_drain_waits_for_what_runs_and_refuses_what_comes(start: Start, connect: Connect) -> None:
    gate = asyncio.Event()
    router = await start(FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)))
    client = await connect(router)
    await client.send(chat())
    await client.wire.expect(b"data: 1")
    draining = asyncio.ensure_future(router.drain(delay=0.0, limit=0.0))

    async def refused() -> bool:
        return await ask(router.port, request("POST", "/v1/chat/completions", b"{}")) == 503

    await eventually(refused, "new requests are refused")
    assert await ask(router.port, request("GET", "/ready")) == 503
    assert not draining.done()
    gate.set()
    assert await draining is True
    assert (await client.answer()).ended == "clean"


async def test_a_drain_serves_during_its_delay(start: Start) -> None:
    router = await start(FakeReplica())
    draining = asyncio.ensure_future(router.drain(delay=0.3, limit=1.0))
    await eventually(lambda: router.draining, "it drains")

    assert await ask(router.port, request("GET", "/ready")) == 503
    assert await ask(router.port, chat(stream=False)) == 200
    assert await draining is True
    assert await ask(router.port, chat(stream=False)) == 503


async def test_a_drain_waits_until_a_slow_client_has_what_was_relayed(start: Start, connect: Connect) -> None:
    body = b"x" * 8_000_000
    router = await start(FakeReplica(reply(sized(body))))
    client = await connect(router)
    client.wire.pause()
    await client.send(chat(stream=False))
    front = router._plane._front
    assert front is not None
    await eventually(lambda: front.unwritten, "the client does not take what is relayed")

    draining = asyncio.ensure_future(router.drain(delay=0.0, limit=30.0))
    await asyncio.wait((draining,), timeout=0.2)
    assert not draining.done()
    client.wire.resume()
    assert (await client.answer()).body.entity == body
    assert await draining is True


async def test_a_drain_gives_up_at_its_limit(start: Start, connect: Connect) -> None:
    router = await start(FakeReplica(held(SSE_HEAD, asyncio.Event())))
    client = await connect(router)
    await client.send(chat())
    await client.wire.expect(b"HTTP/1.1 200")

    assert await router.drain(delay=0.0, limit=0.05) is False


async def test_an_unreachable_fleet_is_served_when_it_comes(start_router: StartRouter) -> None:
    late = FakeReplica()
    router = await start_router(late.settings["url"], ready=0)
    assert (await router.get("/ready")).status == 503
    await late.listen()
    try:
        await router.until_ready(1)
        assert (await router.ask(chat(stream=False))).status == 200
    finally:
        await router.leave()
        await router.stop()
        await late.stop()


def test_a_router_that_was_not_started_has_made_nothing() -> None:
    router = Router(Settings.model_validate({"replicas": [f"http://{HOST}:1"]}))
    assert router.ledger.received() == {}
    assert router.admin_port == 0
