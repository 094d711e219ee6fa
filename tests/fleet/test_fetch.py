"""Reading a replica's answer whole, within a limit."""

import asyncio
from typing import Literal

import aiohttp
import pytest

from replicarouter.fleet.fetch import read_whole
from tests.fakes.replica import FakeReplica, reply
from tests.fakes.wire import eventually
from tests.fleet.conftest import Engine


@pytest.mark.parametrize("pieces", [(), (b"one",), (b"one", b"two", b"three"), (b"x" * 300_000, b"y")])
async def test_an_answer_is_read_to_its_end(
    engine: Engine, session: aiohttp.ClientSession, pieces: tuple[bytes, ...]
) -> None:
    engine.says("/page", *pieces)
    async with session.get(f"{engine.url}/page") as answer:
        assert await read_whole(answer, 1 << 20) == b"".join(pieces)


async def test_an_answer_that_comes_slowly_is_waited_for(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    engine.held = asyncio.Event()
    engine.says("/page", b"one", b"two")
    async with session.get(f"{engine.url}/page") as answer:
        reading = asyncio.ensure_future(read_whole(answer, 100))
        await eventually(lambda: answer.content.total_bytes == 3, "the first piece has come")
        assert not reading.done()
        engine.held.set()
        assert await reading == b"onetwo"


async def test_a_page_beyond_the_limit_is_not_read_on(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.says("/page", b"x" * (4 << 20))
    async with session.get(f"{engine.url}/page") as answer:
        read = await read_whole(answer, 1 << 20)

    assert 1 << 20 <= len(read) < 3 << 20


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_an_answer_that_breaks_off_is_an_error(
    session: aiohttp.ClientSession, how: Literal["fin", "rst"]
) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none"
    async with FakeReplica(reply(cut, then=how)) as replica:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            async with session.get(f"{replica.settings['url']}/page") as answer:
                await read_whole(answer, 100)
