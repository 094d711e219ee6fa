"""Clients that ask again as soon as they have the end of a stream, on the same connection."""

import asyncio
from collections.abc import Callable

import orjson
import pytest

from tests.fakes.client import Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.served import Serve

CLIENTS, TURNS = 8, 25


async def three_writes(received: Received, connection: Connection) -> None:
    """A stream that says which request it belongs to, in reads of their own."""
    name = orjson.loads(received.body)["user"]
    await connection.send(SSE_HEAD + event(name))
    for _ in range(3):
        await asyncio.sleep(0.001)
        await connection.send(event(f"{name} goes on and on, for more than a comment would take"))
    await asyncio.sleep(0.001)
    await connection.send(event(name) + LAST_CHUNK)


def whole(raw: bytes) -> list[bytes]:
    return [raw]


def cut(raw: bytes) -> list[bytes]:
    """The beginning comes alone."""
    return [raw[:20], raw[20:]]


@pytest.mark.parametrize("pieces", [whole, cut])
@pytest.mark.parametrize("flags", [(), ("--max-outstanding", "1"), ("--workers", "2")], ids=" ".join)
async def test_each_gets_its_own_answers(
    serve: Serve, flags: tuple[str, ...], pieces: Callable[[bytes], list[bytes]]
) -> None:
    router = await serve(FakeReplica(three_writes), FakeReplica(three_writes), flags=flags)

    async def chats(number: int) -> None:
        client = await Client.connect(router.port)
        for turn in range(TURNS):
            name = f"client {number} turn {turn}"
            for piece in pieces(chat(user=name)):
                await client.send(piece)
            answer = await client.answer()
            assert answer.status == 200
            assert answer.body.raw.count(name.encode()) == 5
            assert answer.body.raw.endswith(event(name) + LAST_CHUNK)
        client.leave()

    await asyncio.gather(*(chats(number) for number in range(CLIENTS)))
    ledger = await router.settled()
    assert ledger["finished"] == {"ok": CLIENTS * TURNS}
    assert "Traceback" not in router.output
