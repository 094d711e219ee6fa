"""What the router takes from aiohttp's server beyond its documented API. A failure here after an upgrade
says what has changed; until it is understood, the version range in pyproject.toml must not grow."""

import asyncio
import inspect
import re
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import hdrs
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from replicarouter.errors import HeadersTooLarge, MalformedRequest, RequestTimeout
from replicarouter.proxy.aiohttp_internals import (
    ClientConnection,
    InboundRequest,
)
from tests.fakes.client import HOST, request
from tests.fakes.replica import OK, FakeReplica, reply
from tests.fakes.wire import PeerGone, eventually
from tests.proxy.conftest import Front, StartFront, answer, hang

GET = request("GET", "/x")
POST = request("POST", "/x", b"{}")

KNOWN = 3
"""Requests after which a head is known: all but the first may be two in a row."""

# Names and signatures


def test_the_version_is_one_that_was_seen() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.search(r'"aiohttp>=([\d.]+),<([\d.]+)"', pyproject)
    assert declared is not None
    low, high, here = (tuple(map(int, v.split(".")[:3])) for v in (*declared.groups(), aiohttp.__version__))
    assert low <= here < high


ATTRIBUTES = {
    RequestHandler: (
        *("_close", "_force_close", "_handler_waiter", "_keepalive_handle", "_keepalive_timeout"),
        *("_lingering_time", "_message_tail", "_messages", "_msg_queue_resume_size"),
        *("_next_keepalive_close_time", "_request_count", "_request_in_progress", "_task_handler", "_waiter"),
        *("_buffer_paused", "_drain_helper", "_loop", "_parser", "_upgraded", "transport", "writing_paused"),
        *("_process_keepalive", "_resume_reading_if_drained", "force_close", "shutdown", "start"),
        *("connection_made", "connection_lost", "data_received", "eof_received", "pause_writing"),
        "resume_writing",
    ),
    HttpRequestParser: ("message_consumed", "set_upgraded"),
    StreamReader: (
        "_high_water",
        "_low_water",
        "at_eof",
        "exception",
        "is_eof",
        "read_nowait",
        "readany",
        "total_bytes",
    ),
    Server: ("_connections", "connections", "shutdown", "handler_cancellation"),
}


@pytest.mark.parametrize("kind", ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_a_class_has_the_names_that_are_used(kind: type) -> None:
    slots = {name for one in kind.__mro__ for name in getattr(one, "__slots__", ())}
    made = (
        set(re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(kind))) if kind is Server else set()
    )
    missing = [name for name in ATTRIBUTES[kind] if name not in slots | made and name not in dir(kind)]
    assert missing == []


SIGNATURES: dict[str, tuple[Callable[..., object], list[str]]] = {
    "RequestHandler.shutdown": (RequestHandler.shutdown, ["self", "timeout"]),
    "Server.__call__": (Server.__call__, ["self"]),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_method_takes_what_it_is_given(name: str) -> None:
    method, parameters = SIGNATURES[name]
    assert list(inspect.signature(method).parameters) == parameters


def test_options_of_a_client_connection_are_still_options() -> None:
    ours = {
        *("access_log", "auto_decompress", "keepalive_timeout", "lingering_time", "max_line_size"),
        *("max_field_size", "max_headers", "read_bufsize"),
    }
    assert ours <= set(inspect.signature(RequestHandler.__init__).parameters)


def test_a_parsed_head_has_the_fields_that_are_read() -> None:
    used = {"method", "path", "version", "headers", "raw_headers", "should_close", "chunked"}
    assert used <= set(dir(RawRequestMessage))


# Connections of clients


async def test_a_request_arrives_as_it_was_sent(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    body = b'{"model":"m1"}'
    odd = {"X-Odd": "caf\xc3\xa9\xff", "x-TWICE": "1"}
    await client.ask(request("POST", "/v1/x?a=%2F&b", body, odd))
    (seen,) = front.seen
    message = seen.message

    assert (message.method, message.path, tuple(message.version)) == ("POST", "/v1/x?a=%2F&b", (1, 1))
    assert (b"X-Odd", b"caf\xc3\xa9\xff") in message.raw_headers
    assert (b"x-TWICE", b"1") in message.raw_headers
    assert message.headers["x-odd"].encode("utf-8", "surrogateescape") == b"caf\xc3\xa9\xff"
    assert message.headers.getall(hdrs.CONNECTION, ()) == ()
    assert (message.should_close, message.chunked, seen.modern) == (False, False, True)
    assert seen.client is not None


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_came_with_its_head_can_be_read_at_once(
    start_front: StartFront, chunked: bool
) -> None:
    got: list[tuple[bool, int, bytes]] = []

    async def read(one: InboundRequest) -> bool:
        content = one.content
        got.append((content.is_eof(), content.total_bytes, content.read_nowait()))
        return answer(one)

    front = await start_front(read)
    client = await front.connect()
    await client.ask(request("POST", "/x", b"hello", chunked=chunked))

    assert got == [(True, 5, b"hello")]


async def test_a_body_that_is_still_arriving_can_be_waited_for(start_front: StartFront) -> None:
    parts: list[bytes] = []

    async def read(one: InboundRequest) -> bool:
        assert not one.content.is_eof()
        while part := await one.content.readany():
            parts.append(part)
        return answer(one)

    front = await start_front(read)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Content-Length": "6"}))
    await eventually(lambda: front.seen, "the head has come")
    await client.send(b"abc")
    await eventually(lambda: parts == [b"abc"], "the first piece has come")
    await client.send(b"def")
    assert (await client.answer()).status == 200

    assert parts == [b"abc", b"def"]


async def test_a_connection_serves_one_request_after_the_other(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    for _ in range(3):
        assert (await client.ask(GET)).status == 200

    assert len(front.seen) == 3
    assert len({id(seen.client) for seen in front.seen}) == 1


async def test_pipelined_requests_are_answered_in_order(start_front: StartFront) -> None:
    async def echo(one: InboundRequest) -> bool:
        await asyncio.sleep(0)
        return answer(one, one.message.path.encode())

    front = await start_front(echo)
    client = await front.connect()
    await client.send(b"".join(request("GET", f"/{number}") for number in range(100)))

    assert [(await client.answer()).body.entity for _ in range(100)] == [b"/%d" % n for n in range(100)]


async def test_who_sends_requests_ahead_does_not_hold_up_others(start_front: StartFront) -> None:
    front = await start_front()
    eager, other = await front.connect(), await front.connect()
    await asyncio.gather(eager.send(GET * 1000), other.send(GET))
    await other.answer()

    assert len(front.seen) < 500
    for _ in range(1000):
        await eager.answer()


async def test_answers_do_not_pile_up_for_who_does_not_take_them(start_front: StartFront) -> None:
    async def much(one: InboundRequest) -> bool:
        return answer(one, bytes(100_000))

    front = await start_front(much, write_timeout=60.0)
    eager, other = await front.connect(receive_buffer=65536), await front.connect()
    eager.wire.pause()
    await eager.send(GET * 1000)
    await eventually(lambda: front.seen and front.seen[0].client.full, "the client's buffer is full")
    for _ in range(5):
        await other.ask(GET)
    assert len(front.seen) < 100

    eager.wire.resume()
    for _ in range(1000):
        assert len((await eager.answer()).body.entity) == 100_000


async def test_a_handler_that_says_so_ends_the_connection(start_front: StartFront) -> None:
    async def close(one: InboundRequest) -> bool:
        return answer(one, b"x" * 500_000, close=True)

    front = await start_front(close)
    client = await front.connect()
    assert len((await client.ask(GET)).body.entity) == 500_000
    assert await client.gone() == "fin"
    await eventually(lambda: not front.connections, "nothing is left of it")


# Clients that ask again


async def stream(request: InboundRequest) -> bool:
    """Answer as if that had been the end of a stream."""
    request.client.streamed = True
    return answer(request)


async def waiting(front: Front, requests: int) -> tuple[socket.socket, ClientConnection]:
    """A client that has had so many answers, and its connection, which waits for more."""
    loop = asyncio.get_running_loop()
    client = socket.create_connection(("127.0.0.1", front.port))
    client.setblocking(False)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for count in range(1, requests + 1):
        await loop.sock_sendall(client, POST)
        await eventually(lambda: len(front.seen) == count, "it is taken")  # noqa: B023
        await eventually(lambda: [one for one in front.connections if one.idle], "it waits")
        assert (await loop.sock_recv(client, 4096)).endswith(b"ok")
    (connection,) = front.connections
    return client, connection


async def in_one_step(*steps: Callable[[], object]) -> list[object]:
    """Do all of this while the event loop reads nothing."""
    done: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: done.set_result([step() for step in steps]))
    return await done


async def test_behind_a_stream_a_request_can_be_had_before_the_loop_reads_it(start_front: StartFront) -> None:
    front = await start_front(stream)
    client, connection = await waiting(front, KNOWN)
    lookout = front.server.lookout
    with client:
        seen = await in_one_step(lambda: client.send(POST), lookout.look, lambda: len(front.seen))
        assert seen[-1] == KNOWN + 1
        await eventually(lambda: connection.idle, "it is answered")
        assert (await asyncio.get_running_loop().sock_recv(client, 4096)).endswith(b"ok")


async def test_it_is_the_same_request_with_a_head_that_is_not_known(start_front: StartFront) -> None:
    front = await start_front(stream)
    client, _ = await waiting(front, 1)
    other = request("POST", "/other", b"[1]")
    with client:
        await in_one_step(lambda: client.send(other), front.server.lookout.look)
        await eventually(lambda: len(front.seen) == 2, "it is taken")
    assert front.seen[-1].heading.path == "/other"
    assert await front.seen[-1].content.readany() == b"[1]"


async def test_of_a_request_that_is_cut_the_loop_reads_the_rest(start_front: StartFront) -> None:
    front = await start_front(stream)
    client, connection = await waiting(front, KNOWN)
    with client:
        _, _, idle = await in_one_step(
            lambda: client.send(POST[:9]), front.server.lookout.look, lambda: connection.idle
        )
        assert not idle
        client.send(POST[9:])
        await eventually(lambda: len(front.seen) == KNOWN + 1, "it is whole")


async def test_who_was_read_by_the_loop_is_not_read_again(start_front: StartFront) -> None:
    gate = asyncio.Event()

    async def stream_once(request: InboundRequest) -> bool:
        if len(front.seen) > 1:
            await gate.wait()
        return await stream(request)

    front = await start_front(stream_once)
    client, connection = await waiting(front, 1)
    with client:
        client.send(POST)
        await eventually(lambda: len(front.seen) == 2, "the loop has read it")
        *_, unread = await in_one_step(
            lambda: client.send(POST), front.server.lookout.look, connection.unread
        )
        assert unread == POST
        assert len(front.seen) == 2
        gate.set()


@pytest.mark.parametrize("looks", [True, False])
async def test_a_client_that_leaves_behind_its_stream_has_left(start_front: StartFront, looks: bool) -> None:
    front = await start_front(stream)
    client, connection = await waiting(front, 1)
    await in_one_step(client.close, *[front.server.lookout.look] * looks)
    await eventually(lambda: connection.transport is None, "it is lost")
    assert not front.server.lookout.expected
    assert len(front.seen) == 1


async def test_a_client_that_asks_and_leaves_is_not_answered(start_front: StartFront) -> None:
    async def stream_then_hang(request: InboundRequest) -> bool:
        return await (stream(request) if len(front.seen) <= KNOWN else hang(request))

    front = await start_front(stream_then_hang)
    client, _ = await waiting(front, KNOWN)
    await in_one_step(lambda: client.send(POST), front.server.lookout.look, client.close)
    await eventually(lambda: front.cancelled == 1, "its handler is cancelled")


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_handler_is_cancelled_when_its_client_leaves(start_front: StartFront, how: str) -> None:
    front = await start_front(hang)
    client = await front.connect()
    await client.send(GET)
    await eventually(lambda: front.seen, "the handler runs")
    client.leave("fin" if how == "fin" else "rst")
    await eventually(lambda: front.cancelled == 1, "it is cancelled")
    await eventually(lambda: not front.connections, "nothing is left of it")


async def test_a_half_close_counts_as_gone(start_front: StartFront) -> None:
    front = await start_front(hang)
    client = await front.connect()
    await client.send(GET)
    await eventually(lambda: front.seen, "the handler runs")
    client.wire.half_close()
    await eventually(lambda: front.cancelled == 1, "it is cancelled")


async def test_a_client_that_leaves_between_requests_cancels_nothing(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    await client.ask(GET)
    client.leave()
    await eventually(lambda: not front.connections, "nothing is left of it")
    assert front.cancelled == 0


REFUSED = {
    "no HTTP": (b"hello\r\n\r\n", {}, MalformedRequest),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {}, MalformedRequest),
    "another version": (b"GET / HTTP/3.0\r\n\r\n", {}, MalformedRequest),
    "a blank in a name": (b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", {}, MalformedRequest),
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        {},
        MalformedRequest,
    ),
    "a length and chunks": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        {},
        MalformedRequest,
    ),
    "a long field": (
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 2000 + b"\r\n\r\n",
        {"max_field_size": 1000, "max_line_size": 1000},
        HeadersTooLarge,
    ),
    "a long line": (
        b"GET /" + b"b" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        {"max_field_size": 1000, "max_line_size": 1000},
        HeadersTooLarge,
    ),
    "many fields": (
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 50 + b"\r\n",
        {"max_headers": 20},
        HeadersTooLarge,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_head_that_cannot_be_parsed_is_refused(start_front: StartFront, name: str) -> None:
    raw, options, expected = REFUSED[name]
    front = await start_front(**options)
    client = await front.connect()
    await client.send(raw)
    told = await client.answer()
    await client.gone()

    assert [type(error) for error in front.refused] == [expected]
    assert told.status == expected.status
    assert front.seen == []


async def test_what_is_broken_behind_a_good_request_is_refused_after_it(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    assert (await client.ask(GET)).status == 200
    assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
    await client.gone()


# Time and buffers


async def test_a_head_must_end_in_time(start_front: StartFront) -> None:
    front = await start_front(head_timeout=0.1)
    client = await front.connect()
    await client.send(b"GET / HTTP/1.1\r\nHost:")
    assert (await client.answer()).status == 408
    await client.gone()

    assert [type(error) for error in front.refused] == [RequestTimeout]


async def test_the_head_of_a_later_request_must_end_in_time_too(start_front: StartFront) -> None:
    front = await start_front(head_timeout=0.1)
    client = await front.connect()
    await client.ask(GET)
    await client.send(b"GET / HTTP/1.1\r\nHost:")
    assert (await client.answer()).status == 408
    await client.gone()


async def test_the_last_bytes_of_a_body_are_not_the_beginning_of_a_head(start_front: StartFront) -> None:
    async def read(one: InboundRequest) -> bool:
        while await one.content.readany():
            pass
        return answer(one)

    front = await start_front(read, head_timeout=0.1, keepalive_timeout=0.4)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Content-Length": "5"}))
    await eventually(lambda: front.seen, "the head has come")
    await client.send(b"hello")
    assert (await client.answer()).status == 200
    await client.gone()

    assert front.refused == []


async def test_a_client_that_says_nothing_is_closed_without_a_word(start_front: StartFront) -> None:
    front = await start_front(head_timeout=0.1)
    client = await front.connect()
    with pytest.raises(PeerGone):
        await client.answer()
    assert front.refused == []


async def test_an_idle_connection_is_closed_after_its_time(start_front: StartFront) -> None:
    front = await start_front(keepalive_timeout=0.1)
    client = await front.connect()
    assert (await client.ask(GET)).status == 200
    assert await client.gone() == "fin"


async def test_a_request_that_takes_long_is_not_an_idle_connection(start_front: StartFront) -> None:
    release = asyncio.Event()

    async def slow(one: InboundRequest) -> bool:
        await release.wait()
        return answer(one)

    front = await start_front(slow, keepalive_timeout=0.05, head_timeout=0.05)
    client = await front.connect()
    await client.send(GET)
    with pytest.raises(AssertionError, match="not within"):
        await client.gone(deadline=0.3)
    release.set()
    assert (await client.answer()).status == 200


async def test_an_early_answer_arrives_although_its_body_is_still_coming(start_front: StartFront) -> None:
    front = await start_front(lingering_time=5.0)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Content-Length": "3000000"}))
    assert (await client.answer()).status == 200
    for _ in range(30):
        await client.send(b"x" * 100_000)
    assert await client.gone() == "fin"


async def test_a_body_that_never_ends_is_not_read_for_ever(start_front: StartFront) -> None:
    front = await start_front(lingering_time=0.1)
    client = await front.connect()
    await client.send(request("POST", "/x", headers={"Content-Length": "3000000"}))
    assert (await client.answer()).status == 200
    await client.gone()


FULL = 16 << 20
"""Bytes that no pair of socket buffers takes at once."""


async def a_slow_reader(front: Front) -> tuple[ClientConnection, asyncio.Transport]:
    """A client that does not read, and its connection on our side, whose buffer is full."""
    client = await front.connect(receive_buffer=65536)
    client.wire.pause()
    await client.send(GET)
    await eventually(lambda: front.seen, "the handler runs")
    connection = front.seen[0].client
    transport = connection.transport
    assert transport is not None
    transport.write(bytes(FULL))
    assert connection.writing_paused
    return connection, transport


async def test_a_full_buffer_is_told_and_so_is_its_end(start_front: StartFront) -> None:
    front = await start_front(hang)
    connection, _ = await a_slow_reader(front)
    writable = asyncio.Event()
    connection.on_writable = writable.set
    front.clients[0].wire.resume()
    await asyncio.wait_for(writable.wait(), 5)

    assert not connection.writing_paused


async def test_a_client_that_takes_nothing_is_closed(start_front: StartFront) -> None:
    front = await start_front(hang, write_timeout=0.1)
    await a_slow_reader(front)
    await eventually(lambda: front.cancelled == 1, "its request is given up")


@pytest.mark.parametrize("keep_alive", [False, True])
async def test_a_closing_connection_does_not_wait_for_a_client_that_takes_nothing(
    start_front: StartFront, keep_alive: bool
) -> None:
    left: list[int] = []

    async def almost_fill(request: InboundRequest) -> bool:
        transport = request.client.transport
        assert transport is not None
        while transport.get_write_buffer_size() < 16384:
            transport.write(bytes(16384))
            for _ in range(3):
                await asyncio.sleep(0)
        assert not request.client.full
        left.append(transport.get_write_buffer_size())
        return keep_alive

    front = await start_front(almost_fill, write_timeout=0.1, keepalive_timeout=0.1)
    client = await front.connect(receive_buffer=4096)
    client.wire.pause()
    await client.send(GET)
    await eventually(lambda: left, "it is answered")
    await eventually(lambda: not front.connections, "the connection is closed")


async def test_a_client_that_takes_something_in_time_goes_on(start_front: StartFront) -> None:
    front = await start_front(hang, write_timeout=0.3)
    loop = asyncio.get_running_loop()
    with socket.create_connection((HOST, front.port)) as slow:
        slow.setblocking(False)
        await loop.sock_sendall(slow, GET)
        await eventually(lambda: front.seen, "the handler runs")
        connection = front.seen[0].client
        transport = connection.transport
        assert transport is not None
        transport.write(bytes(FULL))
        for _ in range(4):
            before = transport.get_write_buffer_size()
            while transport.get_write_buffer_size() >= before:
                assert await loop.sock_recv(slow, 65536)
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)

        assert connection.writing_paused
        assert front.cancelled == 0


async def test_an_upgrade_that_is_not_taken_leaves_a_usable_connection(start_front: StartFront) -> None:
    front = await start_front()
    client = await front.connect()
    upgrade = request("GET", "/x", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    await client.send(upgrade + GET)

    assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    assert (await client.ask(GET)).status == 200


UPGRADE = request("GET", "/x", headers={"Connection": "Upgrade", "Upgrade": "websocket"})


class Said:
    """A session that keeps what it gets and ends when told to."""

    def __init__(self) -> None:
        self.data = b""
        self.lefts = 0
        self.over = asyncio.Event()

    def take(self, data: bytes) -> None:
        self.data += data

    def left(self) -> None:
        self.lefts += 1
        self.over.set()

    async def handle(self, one: InboundRequest) -> bool:
        self.data += one.client.switch(self)
        await self.over.wait()
        return False


async def test_a_session_gets_what_follows_its_request(start_front: StartFront) -> None:
    said = Said()
    front = await start_front(said.handle)
    client = await front.connect()
    await client.send(UPGRADE + GET)
    await eventually(lambda: said.data == GET, "what came early is there")
    await client.send(b"more")
    await eventually(lambda: said.data == GET + b"more", "the rest is there")
    said.over.set()
    assert await client.gone() == "fin"

    assert len(front.seen) == 1
    assert front.refused == []


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
async def test_a_session_is_told_that_its_client_has_left(start_front: StartFront, how: str) -> None:
    said = Said()
    front = await start_front(said.handle)
    client = await front.connect()
    await client.send(UPGRADE)
    await eventually(lambda: front.seen, "the handler runs")
    if how == "half":
        client.wire.half_close()
    else:
        client.leave("fin" if how == "fin" else "rst")
    await eventually(lambda: said.lefts, "it is told")
    await eventually(lambda: not front.connections, "nothing is left of the connection")

    assert front.cancelled == 0


async def test_shutting_down_waits_for_a_handler_and_then_cancels_it(start_front: StartFront) -> None:
    front = await start_front(hang)
    client = await front.connect()
    await client.send(GET)
    await eventually(lambda: front.seen, "the handler runs")
    await asyncio.wait_for(front.server.shutdown(0.05), 5)
    await eventually(lambda: front.cancelled == 1, "it is cancelled")
    await client.gone()


async def test_a_handler_that_fails_ends_its_connection_alone(
    start_front: StartFront, recwarn: pytest.WarningsRecorder
) -> None:
    release = asyncio.Event()

    async def wait(one: InboundRequest) -> bool:
        await release.wait()
        return answer(one)

    front = await start_front(wait)
    one, other = await front.connect(), await front.connect()
    for client in (one, other):
        await client.send(GET)
    await eventually(lambda: len(front.seen) == 2, "both run")
    one.leave("rst")
    await eventually(lambda: front.cancelled == 1, "the first is cancelled")
    release.set()

    assert (await other.answer()).status == 200
    assert not recwarn.list


async def test_a_fake_replica_answers_as_these_tests_expect() -> None:
    async with FakeReplica(reply(OK)) as replica:
        assert replica.settings["url"].startswith(f"http://{HOST}:")
