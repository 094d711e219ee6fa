"""Heads that clients repeat: read once, and told apart from any other."""

import asyncio

import pytest
from aiohttp import hdrs

from replicarouter.proxy import inbound
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.body import receive_body
from replicarouter.proxy.inbound import REMEMBERED_HEADS, WholeBody
from replicarouter.proxy.memory import BodyMemory
from tests.fakes.client import request
from tests.fakes.wire import eventually
from tests.proxy.conftest import Front, StartFront, answer


def known(front: Front) -> int:
    """How many heads are remembered."""
    return len(front.server.known_heads)


def was_parsed(one: InboundRequest) -> bool:
    return not isinstance(one.content, WholeBody)


def post(body: bytes, **headers: str) -> bytes:
    return request("POST", "/x?a=1", body, {name.replace("_", "-"): text for name, text in headers.items()})


async def test_a_head_that_comes_twice_is_parsed_no_more(start_front: StartFront) -> None:
    bodies: list[bytes] = []

    async def read(one: InboundRequest) -> bool:
        bodies.append(one.content.read_nowait())
        return answer(one)

    front = await start_front(read)
    client = await front.connect()
    sent = [b"first", b"another", b"3", b"x" * 5000]
    for body in sent:
        await client.ask(post(body))

    assert bodies == sent
    assert [was_parsed(one) for one in front.seen] == [True, True, False, False]
    assert len({id(one.heading) for one in front.seen[2:]}) == 1


async def test_what_was_known_says_the_same_as_what_was_parsed(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    for body in (b"12345", b"12345", b"1234567890"):
        await client.ask(post(body, X_Odd="caf\xc3\xa9\xff", Content_Type="application/json"))
    first, last = front.seen[0].message, front.seen[2].message

    assert [was_parsed(one) for one in front.seen] == [True, True, False]
    assert (first.method, first.path, first.version) == (last.method, last.path, last.version)
    assert last.headers[hdrs.CONTENT_LENGTH] == "10"
    assert (b"Content-Length", b"10") in last.raw_headers
    others = [field for field in last.raw_headers if field[0] != b"Content-Length"]
    assert others == [field for field in first.raw_headers if field[0] != b"Content-Length"]
    assert front.seen[2].modern
    assert front.seen[2].heading.query == "a=1"


async def test_a_body_that_came_whole_can_be_received_like_any_other(start_front: StartFront) -> None:
    bodies: list[bytes] = []

    async def read(one: InboundRequest) -> bool:
        body = await receive_body(one, most=100, gap=5.0, memory=BodyMemory(100))
        bodies.append(body.data)
        body.drop()
        return answer(one)

    front = await start_front(read)
    client = await front.connect()
    sent = [b"1", b"22", b"333"]
    for body in sent:
        await client.ask(post(body))
    assert bodies == sent


async def test_a_head_that_is_known_is_known_on_every_connection(start_front: StartFront) -> None:
    front = await start_front()
    for number in range(3):
        client = await front.connect()
        await client.ask(post(b"%d" % number))
    assert [was_parsed(one) for one in front.seen] == [True, True, False]


UNLIKE = {
    "another field": post(b"12345", X_More="1"),
    "another path": request("POST", "/y", b"12345"),
    "another spelling": post(b"12345").replace(b"Content-Length: ", b"content-length: "),
    "a sign": post(b"12345").replace(b": 5\r", b": +5\r"),
    "a space": post(b"12345").replace(b": 5\r", b":  5\r"),
    "two lengths": post(b"12345").replace(b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 5"),
    "a bare line feed": post(b"12345").replace(b"Content-Length: 5\r\n", b"Content-Length: 5\n"),
    "chunks": request("POST", "/x?a=1", b"12345", chunked=True),
    "no length": request("POST", "/x?a=1"),
}


@pytest.mark.parametrize("name", UNLIKE)
async def test_a_head_that_differs_is_parsed(start_front: StartFront, name: str) -> None:
    front = await start_front()
    client = await front.connect()
    for _ in range(2):
        await client.ask(post(b"12345"))
    assert known(front) == 1
    await client.send(UNLIKE[name])
    await client.answer()

    assert all(map(was_parsed, front.seen))


async def test_a_request_in_pieces_or_with_another_behind_it_is_parsed(start_front: StartFront) -> None:
    async def read(one: InboundRequest) -> bool:
        while not one.content.at_eof():
            await one.content.readany()
        return answer(one)

    front = await start_front(read)
    client = await front.connect()
    raw = post(b"12345")
    for _ in range(2):
        await client.ask(raw)
    await client.send(raw[:-2])
    await eventually(lambda: len(front.seen) == 3, "its head has come")
    await client.send(raw[-2:])
    await client.answer()
    await client.send(raw + raw)
    await client.answer()
    await client.answer()
    await client.send(raw[:10])
    await asyncio.sleep(0)
    await client.send(raw[10:])
    await client.answer()

    assert len(front.seen) == 6
    assert sum(map(was_parsed, front.seen)) >= 5


NOT_THE_SAME_TWICE = {
    "an expectation": {"Expect": "100-continue"},
    "the last one": {"Connection": "close"},
    "an upgrade": {"Connection": "upgrade", "Upgrade": "websocket"},
}


@pytest.mark.parametrize("name", NOT_THE_SAME_TWICE)
async def test_a_head_that_says_more_than_the_length_of_its_body_is_not_remembered(
    start_front: StartFront, name: str
) -> None:
    front = await start_front()
    for _ in range(3):
        client = await front.connect()
        await client.ask(request("POST", "/x", b"12345", NOT_THE_SAME_TWICE[name]))
    assert known(front) == 0


async def test_heads_that_never_come_again_take_nobodys_place(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    for number in range(20):
        await client.ask(post(b"1", X_Request_Id=f"id-{number}"))
    assert known(front) == 0


async def test_no_more_heads_are_remembered_than_there_is_room_for(
    start_front: StartFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REMEMBERED_HEADS <= 1024
    monkeypatch.setattr(inbound, "REMEMBERED_HEADS", 3)
    front = await start_front()
    client = await front.connect()
    for number in range(8):
        for _ in range(2):
            await client.ask(post(b"1", X_Number=str(number)))
    assert known(front) == 3


async def test_a_head_that_is_too_long_is_not_remembered(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    for _ in range(3):
        await client.ask(post(b"1", X_Long="x" * 5000))
    assert known(front) == 0
