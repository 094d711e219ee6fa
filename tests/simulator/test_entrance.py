"""A port that can refuse, on both event loops."""

import asyncio
import socket

import pytest

from replicarouter.simulator.entrance import Entrance
from tests.fakes.client import HOST
from tests.fakes.wire import eventually


async def taken(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_bound_port_refuses_until_it_listens() -> None:
    entrance = Entrance(asyncio.Protocol)
    port = await entrance.bind(HOST, 0)
    assert not await taken(port)
    entrance.listen()
    assert await taken(port)
    await entrance.close()
    assert not await taken(port)


async def test_port_is_kept_while_it_refuses() -> None:
    entrance = Entrance(asyncio.Protocol)
    port = await entrance.bind(HOST, 0)
    entrance.listen()
    entrance.shut("first")
    entrance.shut("second")
    assert not await taken(port)
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind((HOST, port))
    entrance.reopen("first")
    entrance.reopen("unknown")
    await asyncio.sleep(0.05)
    assert not await taken(port), "there is a reason left"
    entrance.reopen("second")
    await eventually(lambda: taken(port), "it listens")
    await entrance.close()


async def test_changing_ones_mind_quickly_ends_as_said_last() -> None:
    entrance = Entrance(asyncio.Protocol)
    port = await entrance.bind(HOST, 0)
    entrance.listen()
    for _ in range(5):
        entrance.shut("x")
        entrance.reopen("x")
        await asyncio.sleep(0)
        entrance.shut("x")
    await asyncio.sleep(0.05)
    assert not await taken(port)
    entrance.reopen("x")
    await entrance.close()
    assert not await taken(port)


async def test_taken_port_is_named() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"address {HOST}:{port}: .*in use"):
            await Entrance(asyncio.Protocol).bind(HOST, port)


async def test_port_taken_while_it_was_not_listened_on_is_named() -> None:
    first, second = Entrance(asyncio.Protocol), Entrance(asyncio.Protocol)
    port = await first.bind(HOST, 0)
    await second.bind(HOST, port)
    first.listen()
    with pytest.raises(OSError, match=rf"address {HOST}:{port}: .*in use"):
        second.listen()
    await second.close()
    await first.close()


async def test_every_address_of_a_host_is_listened_on() -> None:
    entrance = Entrance(asyncio.Protocol)
    port = await entrance.bind("localhost", 0)
    entrance.listen()
    assert await taken(port)
    entrance.shut("x")
    assert not await taken(port)
    await entrance.close()
