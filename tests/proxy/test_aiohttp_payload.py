"""What the router takes from aiohttp's reader of bodies beyond its documented API. A failure here after an
upgrade says what has changed; until it is understood, the version range in pyproject.toml must not grow."""

import asyncio

import pytest
from aiohttp.streams import StreamReader

from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.aiohttp_payload import divert, restore
from tests.fakes.client import request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront, answer


def test_the_reader_has_the_names_that_are_used() -> None:
    assert {"_cursor", "_timer", "total_bytes"} <= set(StreamReader.__slots__)
    for name in ("feed_data", "feed_eof", "set_exception", "end_http_chunk_receiving"):
        assert callable(getattr(StreamReader, name))


class Taking:
    """Takes a body from its second byte on, until a stop comes by; then it is read as ever."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.rest = b""
        self.error: BaseException | None = None
        self.over = asyncio.Event()
        self.diverted = asyncio.Event()
        self.restored = asyncio.Event()

    async def __call__(self, one: InboundRequest) -> bool:
        content = one.content
        assert isinstance(content, StreamReader)
        self.taken.append(await content.readany())
        before = divert(content, self)
        self.diverted.set()
        await self.over.wait()
        restore(content, before)
        self.restored.set()
        if self.error is None:
            self.rest = await content.read()
        return answer(one, close=self.error is not None)

    def take(self, data: bytes) -> None:
        self.taken.append(data)
        if data == b"stop":
            self.over.set()

    def ended(self) -> None:
        self.over.set()

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.over.set()


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
async def test_what_comes_is_taken_and_read_again_later(
    start_front: StartFront, chunked: bool, stop: bool
) -> None:
    taking = Taking()
    front = await start_front(taking)
    client = await front.connect()
    pieces = [b"0", *(b"%d" % number * 1000 for number in range(20)), b"stop" if stop else b"go", b"end"]
    size = sum(map(len, pieces))
    fields = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)}
    await client.send(request("POST", "/x", headers=fields))
    for number, piece in enumerate(pieces):
        await client.send(chunk(piece) if chunked else piece)
        if not number:
            await taking.diverted.wait()
        else:
            before = b"".join(pieces[: number + 1])
            if piece != b"end" or not stop:
                await eventually(lambda: b"".join(taking.taken) == before, "it is taken")  # noqa: B023
        if piece == b"stop":
            await taking.restored.wait()
    if chunked:
        await client.send(LAST_CHUNK)
    assert (await client.answer()).status == 200
    assert b"".join(taking.taken) + taking.rest == b"".join(pieces)
    assert (taking.rest != b"") == stop
    # Nothing is left of it for the next request.
    assert (front.connections[0].idle, len(front.seen)) == (True, 1)


async def test_broken_framing_is_told(start_front: StartFront) -> None:
    taking = Taking()
    front = await start_front(taking, lingering_time=0.1)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Transfer-Encoding": "chunked"}) + chunk(b"0"))
    await taking.diverted.wait()
    await client.send(b"zz\r\n")
    await eventually(lambda: taking.error, "it is told")
