"""Receiving a request's body through a real connection, within its limits."""

import asyncio

import pytest

from replicarouter.errors import (
    BodyTooLarge,
    ExpectationFailed,
    MalformedRequest,
    Overloaded,
    RequestTimeout,
    RouterError,
)
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.body import Body, arrived_body, receive_body
from replicarouter.proxy.memory import BodyMemory
from tests.fakes.client import request
from tests.fakes.wire import eventually
from tests.proxy.conftest import Front, StartFront, answer

BODY = b'{"model":"m1"}'


class Receiving:
    """A handler that receives the body, and what came of it."""

    def __init__(self, *, most: int = 100_000, gap: float = 5.0, room: int = 1_000_000) -> None:
        self.most, self.gap = most, gap
        self.memory = BodyMemory(room)
        self.at_once: Body | None = None
        self.body: Body | None = None
        self.error: RouterError | None = None

    async def __call__(self, one: InboundRequest) -> bool:
        try:
            self.at_once = arrived_body(one, most=self.most, memory=self.memory)
            self.body = self.at_once or await receive_body(
                one, most=self.most, gap=self.gap, memory=self.memory
            )
        except RouterError as error:
            self.error = error
        return answer(one)


async def begin(start_front: StartFront, receiving: Receiving, raw: bytes) -> Front:
    front = await start_front(receiving, lingering_time=0.1)
    client = await front.connect()
    await client.send(raw)
    await eventually(lambda: front.seen, "the head has come")
    return front


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_came_with_its_head_is_there_at_once(
    start_front: StartFront, chunked: bool
) -> None:
    receiving = Receiving()
    front = await begin(start_front, receiving, request("POST", "/x", BODY, chunked=chunked))
    await front.clients[0].answer()

    assert receiving.at_once is receiving.body
    assert receiving.body == Body(BODY, len(BODY))


@pytest.mark.parametrize(
    ("method", "length"), [("GET", None), ("DELETE", None), ("HEAD", None), ("POST", 0), ("PUT", 0)]
)
async def test_without_a_body_there_is_nothing_to_wait_for(
    start_front: StartFront, method: str, length: int | None
) -> None:
    receiving = Receiving()
    front = await begin(start_front, receiving, request(method, "/x"))
    await eventually(lambda: receiving.body, "it has been received")

    assert receiving.body == Body(b"", length)
    assert front.cancelled == 0


async def test_an_empty_body_is_a_body(start_front: StartFront) -> None:
    receiving = Receiving()
    front = await begin(start_front, receiving, request("POST", "/x", b""))
    await front.clients[0].answer()
    assert receiving.body == Body(b"", 0)


@pytest.mark.parametrize("size", [1, 1000, 90_000])
async def test_a_body_that_arrives_in_pieces_is_put_together(start_front: StartFront, size: int) -> None:
    receiving = Receiving()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    raw = request("POST", "/x", body)
    front = await begin(start_front, receiving, raw[:-size])
    for start in range(0, size, 30_000):
        await front.clients[0].send(body[start : start + 30_000])
        await asyncio.sleep(0)
    await front.clients[0].answer()

    assert receiving.at_once is None
    assert receiving.body == Body(body, size)


async def test_a_chunked_body_that_arrives_bytewise_is_put_together(start_front: StartFront) -> None:
    receiving = Receiving()
    raw = request("POST", "/x", BODY, chunked=True)
    head_end = raw.index(b"\r\n\r\n") + 4
    front = await begin(start_front, receiving, raw[:head_end])
    for at in range(head_end, len(raw)):
        await front.clients[0].send(raw[at : at + 1])
        await asyncio.sleep(0)
    await front.clients[0].answer()

    assert receiving.body == Body(BODY, len(BODY))


# Too large


async def test_a_declared_length_beyond_the_limit_is_refused_before_it_is_read(
    start_front: StartFront,
) -> None:
    receiving = Receiving(most=10)
    await begin(start_front, receiving, request("POST", "/x", headers={"Content-Length": "11"}))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, BodyTooLarge)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_beyond_the_limit_is_refused_although_it_is_there(
    start_front: StartFront, chunked: bool
) -> None:
    receiving = Receiving(most=len(BODY) - 1)
    await begin(start_front, receiving, request("POST", "/x", BODY, chunked=chunked))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, BodyTooLarge)


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(start_front: StartFront) -> None:
    receiving = Receiving(most=1000)
    raw = request("POST", "/x", headers={"Transfer-Encoding": "chunked"})
    front = await begin(start_front, receiving, raw)
    await front.clients[0].send(b"7d0\r\n" + b"x" * 2000)
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, BodyTooLarge)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_exactly_the_limit_is_taken(start_front: StartFront, chunked: bool) -> None:
    receiving = Receiving(most=len(BODY))
    front = await begin(start_front, receiving, request("POST", "/x", BODY, chunked=chunked))
    await front.clients[0].answer()
    assert receiving.body == Body(BODY, len(BODY))


# Too slow, or broken


async def test_silence_inside_a_body_is_not_waited_for(start_front: StartFront) -> None:
    receiving = Receiving(gap=0.1)
    await begin(start_front, receiving, request("POST", "/x", headers={"Content-Length": "5"}) + b"he")
    await eventually(lambda: receiving.error, "it is given up")
    assert isinstance(receiving.error, RequestTimeout)


async def test_a_slow_body_that_keeps_coming_is_waited_for(start_front: StartFront) -> None:
    receiving = Receiving(gap=0.5)
    front = await begin(start_front, receiving, request("POST", "/x", headers={"Content-Length": "6"}))
    for _ in range(6):
        await asyncio.sleep(0.1)
        await front.clients[0].send(b"x")
    await front.clients[0].answer()
    assert receiving.body == Body(b"x" * 6, 6)


BROKEN = [b"zz\r\n", b"-1\r\n", b"5\r\nhello!\r\n", b"5 5\r\n"]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_chunk_is_refused_when_it_comes(start_front: StartFront, broken: bytes) -> None:
    receiving = Receiving(gap=0.3)
    raw = request("POST", "/x", headers={"Transfer-Encoding": "chunked"})
    front = await begin(start_front, receiving, raw)
    await front.clients[0].send(broken)
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, MalformedRequest)


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked", "Chunked, chunked"])
async def test_a_coding_that_a_replica_may_read_otherwise_is_refused(
    start_front: StartFront, coding: str
) -> None:
    receiving = Receiving()
    front = await start_front(receiving)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Transfer-Encoding": coding}) + b"0\r\n\r\n")
    await eventually(lambda: receiving.error or front.refused, "it is refused")

    error = receiving.error or front.refused[0]
    assert isinstance(error, MalformedRequest)
    assert error.closes


async def test_a_client_that_leaves_in_its_body_cancels(start_front: StartFront) -> None:
    receiving = Receiving()
    front = await begin(start_front, receiving, request("POST", "/x", headers={"Content-Length": "5"}))
    front.clients[0].leave()
    await eventually(lambda: front.cancelled == 1, "it is cancelled")
    assert (receiving.body, receiving.error) == (None, None)


# Expectations


async def test_who_waits_for_a_go_ahead_gets_it(start_front: StartFront) -> None:
    receiving = Receiving()
    headers = {"Content-Length": "5", "Expect": "100-Continue"}
    front = await begin(start_front, receiving, request("POST", "/x", headers=headers))
    client = front.clients[0]
    assert (await client.head()).start == "HTTP/1.1 100 Continue"
    await client.send(b"hello")
    assert (await client.answer()).status == 200
    assert receiving.body == Body(b"hello", 5)


async def test_who_did_not_wait_for_it_gets_none(start_front: StartFront) -> None:
    receiving = Receiving()
    headers = {"Expect": "100-continue"}
    front = await begin(start_front, receiving, request("POST", "/x", b"hello", headers))
    assert (await front.clients[0].answer()).informational == []


async def test_another_expectation_is_not_met(start_front: StartFront) -> None:
    receiving = Receiving()
    headers = {"Content-Length": "5", "Expect": "a-miracle"}
    await begin(start_front, receiving, request("POST", "/x", headers=headers))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, ExpectationFailed)


async def test_a_body_too_large_is_refused_before_it_is_asked_for(start_front: StartFront) -> None:
    receiving = Receiving(most=10)
    headers = {"Content-Length": "11", "Expect": "100-continue"}
    front = await begin(start_front, receiving, request("POST", "/x", headers=headers))
    await eventually(lambda: receiving.error, "it is refused")
    assert (await front.clients[0].answer()).informational == []


def test_a_dropped_body_keeps_its_length() -> None:
    body = Body(BODY, len(BODY))
    body.drop()
    assert body == Body(b"", len(BODY))


# Memory


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_counts_against_memory_until_it_is_dropped(
    start_front: StartFront, chunked: bool
) -> None:
    receiving = Receiving()
    front = await begin(start_front, receiving, request("POST", "/x", BODY, chunked=chunked))
    await front.clients[0].answer()
    assert receiving.memory.held == len(BODY)
    assert receiving.body is not None
    receiving.body.drop()
    receiving.body.drop()
    assert receiving.memory.held == 0


async def test_a_body_that_memory_has_no_room_for_is_refused_at_once(start_front: StartFront) -> None:
    receiving = Receiving(room=len(BODY) - 1)
    await begin(start_front, receiving, request("POST", "/x", BODY))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, Overloaded)
    assert receiving.memory.held == 0


async def test_a_declared_length_takes_its_room_before_it_comes(start_front: StartFront) -> None:
    receiving = Receiving(room=1000)
    front = await begin(start_front, receiving, request("POST", "/x", headers={"Content-Length": "1000"}))
    await eventually(lambda: receiving.memory.held == 1000, "the room is taken")
    front.clients[0].leave()
    await eventually(lambda: receiving.memory.held == 0, "it is given back")


@pytest.mark.parametrize("how", ["silence", "broken", "too large", "left"])
async def test_whatever_ends_a_body_early_gives_its_room_back(start_front: StartFront, how: str) -> None:
    receiving = Receiving(gap=0.2 if how == "silence" else 5.0, most=1000)
    raw = request("POST", "/x", headers={"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n"
    front = await begin(start_front, receiving, raw)
    await eventually(lambda: receiving.memory.held == 3, "it has begun")
    client = front.clients[0]
    if how == "left":
        client.leave()
    elif how != "silence":
        await client.send(b"zz\r\n" if how == "broken" else b"7d0\r\n" + b"x" * 2000)
    await eventually(lambda: receiving.memory.held == 0, "the room is given back")
    assert (receiving.error is None) == (how == "left")
