"""The whole router, started and stopped."""

import asyncio
import socket
from pathlib import Path

import pytest

from replicarouter.app import Router
from replicarouter.settings import Settings
from tests.fakes.client import HOST, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held, reply, sized
from tests.fakes.running import StartRouter, free_port
from tests.fakes.wire import eventually


def settings(fake: FakeReplica, **options: object) -> Settings:
    values = {"port": 0, "admin": {"port": 0}, "replicas": [fake.settings], **options}
    return Settings.model_validate(values)


async def ask(port: int, raw: bytes) -> int:
    client = await Client.connect(port)
    try:
        return (await client.ask(raw)).status
    finally:
        await client.closed()


async def test_a_started_router_has_probed_its_replicas_and_serves() -> None:
    async with FakeReplica() as fake:
        router = Router(settings(fake, admin={"port": free_port()}))
        await router.start()
        try:
            assert await ask(router.port, request("GET", "/ready")) == 200
            assert await ask(router.admin_port, request("GET", "/admin/ledger")) == 200
            assert await ask(router.port, chat(stream=False)) == 200
        finally:
            await router.stop()


async def test_an_admin_port_of_0_is_none() -> None:
    async with FakeReplica() as fake:
        router = Router(settings(fake))
        await router.start()
        assert router.admin_port == 0
        await router.stop()


async def test_two_routers_live_in_one_process() -> None:
    async with FakeReplica() as fake:
        routers = [Router(settings(fake)) for _ in range(2)]
        for router in routers:
            await router.start()
        try:
            assert await ask(routers[0].port, chat(stream=False)) == 200
            assert routers[0].ledger.received() != routers[1].ledger.received() == {}
        finally:
            for router in routers:
                await router.stop()


@pytest.mark.parametrize("taken", ["port", "admin"])
async def test_a_taken_port_leaves_nothing_behind(taken: str) -> None:
    async with FakeReplica() as fake:
        first = Router(settings(fake))
        await first.start()
        free = free_port()
        ports = {"port": first.port} if taken == "port" else {"port": free, "admin": {"port": first.port}}
        with pytest.raises(OSError, match="in use"):
            await Router(settings(fake, **ports)).start()
        if taken == "admin":
            with pytest.raises(ConnectionRefusedError):
                await ask(free, request("GET", "/health"))
        assert await ask(first.port, request("GET", "/health")) == 200
        await first.stop()


async def test_a_stopped_router_refuses_and_cuts() -> None:
    async with FakeReplica(held(SSE_HEAD + event("1"), asyncio.Event())) as fake:
        router = Router(settings(fake))
        await router.start()
        port = router.port
        client = await Client.connect(port)
        await client.send(chat())
        await client.wire.expect(b"data: 1")
        await asyncio.wait_for(router.stop(), 5)

        await client.gone()
        await fake.requests[0].aborted()
        with pytest.raises(ConnectionRefusedError):
            await ask(port, request("GET", "/health"))
        assert list(router.ledger.cells) == [0] * len(router.ledger.cells)
        await client.closed()


async def test_a_drain_waits_for_what_runs_and_refuses_what_comes() -> None:
    gate = asyncio.Event()
    async with FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)) as fake:
        router = Router(settings(fake))
        await router.start()
        client = await Client.connect(router.port)
        await client.send(chat())
        await client.wire.expect(b"data: 1")
        draining = asyncio.ensure_future(router.drain(delay=0.0, limit=0.0))
        await eventually(lambda: router.draining, "it drains")
        await asyncio.sleep(0)

        assert await ask(router.port, request("GET", "/ready")) == 503
        assert await ask(router.port, chat(stream=False)) == 503
        assert not draining.done()
        gate.set()
        assert await draining is True
        assert (await client.answer()).ended == "clean"
        await client.closed()
        await router.stop()


async def test_a_drain_serves_during_its_delay() -> None:
    async with FakeReplica() as fake:
        router = Router(settings(fake))
        await router.start()
        draining = asyncio.ensure_future(router.drain(delay=0.3, limit=1.0))
        await eventually(lambda: router.draining, "it drains")

        assert await ask(router.port, request("GET", "/ready")) == 503
        assert await ask(router.port, chat(stream=False)) == 200
        assert await draining is True
        assert await ask(router.port, chat(stream=False)) == 503
        await router.stop()


@pytest.mark.xfail(strict=True, reason="what is still in a client's buffer is not waited for")
async def test_a_drain_waits_until_a_slow_client_has_what_was_relayed() -> None:
    body = b"x" * 60_000
    async with FakeReplica(reply(sized(body))) as fake:
        router = Router(settings(fake))
        await router.start()
        client = await Client.connect(router.port, receive_buffer=4096)
        assert router._front is not None
        await eventually(lambda: router._front and router._front.connections, "it is connected")
        transport = router._front.connections[0].transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.wire.pause()
        await client.send(chat(stream=False))
        await eventually(lambda: list(router.ledger.finished), "all of it is relayed")
        assert transport.get_write_buffer_size() > 0

        draining = asyncio.ensure_future(router.drain(delay=0.0, limit=30.0))
        await asyncio.wait((draining,), timeout=0.2)
        try:
            assert not draining.done()
            client.wire.resume()
            assert (await client.answer()).body.entity == body
            assert await draining is True
        finally:
            await router.stop()
            await client.closed()


async def test_a_drain_gives_up_at_its_limit() -> None:
    async with FakeReplica(held(SSE_HEAD, asyncio.Event())) as fake:
        router = Router(settings(fake))
        await router.start()
        client = await Client.connect(router.port)
        await client.send(chat())
        await client.wire.expect(b"HTTP/1.1 200")
        assert await router.drain(delay=0.0, limit=0.05) is False
        await client.closed()
        await router.stop()


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


def test_a_router_that_was_not_started_has_made_nothing(tmp_path: Path) -> None:
    router = Router(Settings.model_validate({"replicas": [f"http://{HOST}:1"]}))
    assert router.ledger.received() == {}
    assert list(tmp_path.iterdir()) == []
