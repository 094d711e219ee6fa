"""A body is given away in the moment in which it comes, within its limits, and can be paused."""

import asyncio

import pytest

from replicarouter.errors import BodyTooLarge, MalformedRequest, Overloaded, RequestTimeout, RouterError
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.arriving import Arriving
from tests.fakes.client import request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.wire import eventually
from tests.proxy.conftest import Front, StartFront, answer


class Pouring:
    """A handler that pours the body out, and what came of it."""

    def __init__(self, *, most: int = 10**9, gap: float = 5.0, refuse_at: int = 10**9) -> None:
        self.most, self.gap, self.refuse_at = most, gap, refuse_at
        self.given = bytearray()
        self.pause_at = 10**9
        self.arriving: Arriving | None = None
        self.error: RouterError | None = None
        self.stop = asyncio.Event()
        self.rest = b""

    async def __call__(self, one: InboundRequest) -> bool:
        try:
            self.arriving = Arriving(one, most=self.most, gap=self.gap)
            pouring = asyncio.ensure_future(self.arriving.pour(self.give))
            stopping = asyncio.ensure_future(self.stop.wait())
            await asyncio.wait([pouring, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not pouring.done():
                pouring.cancel()
                await asyncio.wait([pouring])
                while data := await self.arriving.read():
                    self.rest += data
            else:
                await pouring
        except RouterError as error:
            self.error = error
        return answer(one)

    def give(self, data: bytes) -> None:
        self.given += data
        if len(self.given) >= self.refuse_at:
            raise Overloaded("no room")
        if len(self.given) >= self.pause_at:
            assert self.arriving is not None
            self.arriving.pause()


async def begin(start_front: StartFront, pouring: Pouring, raw: bytes) -> Front:
    front = await start_front(pouring, lingering_time=0.1)
    client = await front.connect()
    await client.send(raw)
    await eventually(lambda: pouring.arriving or pouring.error, "the head has come")
    return front


def declared(size: int) -> bytes:
    return request("POST", "/x", headers={"Content-Length": str(size)})


@pytest.mark.parametrize("chunked", [True, False])
async def test_all_of_it_is_given(start_front: StartFront, chunked: bool) -> None:
    pouring = Pouring()
    body = bytes(range(256)) * 8000
    front = await begin(start_front, pouring, request("POST", "/x", body, chunked=chunked))
    assert (await front.clients[0].answer()).status == 200
    assert pouring.given == body
    assert pouring.arriving is not None
    assert (pouring.arriving.received, pouring.arriving.ended) == (len(body), True)


async def test_what_came_with_the_head_is_given_first(start_front: StartFront) -> None:
    pouring = Pouring()
    front = await begin(start_front, pouring, declared(10) + b"01234")
    await eventually(lambda: pouring.given == b"01234", "it is given")
    await front.clients[0].send(b"56789")
    assert (await front.clients[0].answer()).status == 200
    assert pouring.given == b"0123456789"


async def test_paused_it_reads_nothing_and_waits_for_nobody(start_front: StartFront) -> None:
    pouring = Pouring(gap=0.2)
    pouring.pause_at = 1
    size = 20_000_000
    front = await begin(start_front, pouring, declared(size))
    client = front.clients[0]
    client.wire.transport.write(b"x" * size)
    await eventually(lambda: pouring.given and client.wire.write_blocked, "the client is slowed")
    given = len(pouring.given)
    await asyncio.sleep(0.5)  # longer than the gap
    assert (len(pouring.given), pouring.error) == (given, None)
    assert given < 2_000_000
    pouring.pause_at = 10**9
    assert pouring.arriving is not None
    pouring.arriving.resume()
    assert (await client.answer()).status == 200
    assert len(pouring.given) == size


async def test_a_pause_ends_with_the_body_also_where_all_of_it_had_come(start_front: StartFront) -> None:
    gate = asyncio.Event()

    class Late(Pouring):
        async def __call__(self, one: InboundRequest) -> bool:
            await gate.wait()
            return await super().__call__(one)

    pouring = Late()
    pouring.pause_at = 1
    front = await start_front(pouring)
    client = await front.connect()
    await client.send(declared(30_000) + b"x" * 30_000)
    await eventually(lambda: front.seen and front.seen[0].content.is_eof(), "all has come")
    gate.set()
    assert (await client.answer()).status == 200
    assert len(pouring.given) == 30_000
    assert (await client.ask(declared(3) + b"xyz")).status == 200


async def test_what_comes_after_it_was_stopped_waits_to_be_read(start_front: StartFront) -> None:
    pouring = Pouring()
    front = await begin(start_front, pouring, declared(300_000) + b"x" * 100_000)
    await eventually(lambda: len(pouring.given) == 100_000, "the beginning is given")
    pouring.stop.set()
    await front.clients[0].send(b"y" * 200_000)
    assert (await front.clients[0].answer()).status == 200
    assert bytes(pouring.given) + pouring.rest == b"x" * 100_000 + b"y" * 200_000


async def test_who_cannot_take_more_ends_it(start_front: StartFront) -> None:
    pouring = Pouring(refuse_at=150_000)
    front = await begin(start_front, pouring, declared(10_000_000))
    await front.clients[0].send(b"x" * 200_000)
    await eventually(lambda: pouring.error, "it is refused")
    assert isinstance(pouring.error, Overloaded)


async def test_silence_is_not_waited_for(start_front: StartFront) -> None:
    pouring = Pouring(gap=0.1)
    await begin(start_front, pouring, declared(10) + b"01234")
    await eventually(lambda: pouring.error, "it is given up")
    assert isinstance(pouring.error, RequestTimeout)


async def test_a_slow_client_that_goes_on_is_waited_for(start_front: StartFront) -> None:
    pouring = Pouring(gap=0.5)
    front = await begin(start_front, pouring, declared(8))
    for _ in range(8):
        await asyncio.sleep(0.1)
        await front.clients[0].send(b"x")
    assert (await front.clients[0].answer()).status == 200


async def test_too_much_is_refused(start_front: StartFront) -> None:
    pouring = Pouring(most=1000)
    head = request("POST", "/x", headers={"Transfer-Encoding": "chunked"})
    front = await begin(start_front, pouring, head + chunk(b"x" * 900))
    await eventually(lambda: len(pouring.given) == 900, "the beginning is given")
    await front.clients[0].send(chunk(b"x" * 200))
    await eventually(lambda: pouring.error, "it is refused")
    assert isinstance(pouring.error, BodyTooLarge)


async def test_broken_framing_is_malformed(start_front: StartFront) -> None:
    pouring = Pouring()
    head = request("POST", "/x", headers={"Transfer-Encoding": "chunked"})
    front = await begin(start_front, pouring, head + chunk(b"some"))
    await eventually(lambda: pouring.given == b"some", "the beginning is given")
    await front.clients[0].send(b"zz\r\n")
    await eventually(lambda: pouring.error, "it is refused")
    assert isinstance(pouring.error, MalformedRequest)


async def test_a_client_that_leaves_cancels(start_front: StartFront) -> None:
    pouring = Pouring()
    front = await begin(start_front, pouring, declared(10) + b"01234")
    front.clients[0].leave()
    await eventually(lambda: front.cancelled == 1, "it is cancelled")
    assert LAST_CHUNK not in pouring.given
