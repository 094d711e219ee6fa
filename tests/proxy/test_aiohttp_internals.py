"""What the router takes from aiohttp beyond its documented API. A failure here after an upgrade says what
has changed; until it is understood, the version range in pyproject.toml must not grow."""

import asyncio
import inspect
import re
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import ClientTimeout, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import BaseConnector, Connection
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from replicarouter.errors import HeadersTooLarge, MalformedRequest, RequestTimeout
from replicarouter.proxy.aiohttp_internals import (
    ClientConnection,
    Connector,
    InboundRequest,
    ReplicaConnection,
)
from tests.fakes.client import HOST, chat, request
from tests.fakes.replica import OK, FakeReplica, reply
from tests.fakes.wire import PeerGone, eventually
from tests.proxy.conftest import Front, StartFront, answer

GET = request("GET", "/x")

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
        *("_buffer_paused", "_loop", "_parser", "_upgraded", "transport", "writing_paused"),
        *("_process_keepalive", "_resume_reading_if_drained", "force_close", "shutdown", "start"),
        *("connection_made", "connection_lost", "data_received", "eof_received", "pause_writing"),
        "resume_writing",
    ),
    ResponseHandler: ("abort", "close", "connection_lost", "data_received", "should_close", "closed"),
    HttpRequestParser: ("message_consumed", "set_upgraded"),
    Connection: ("protocol", "release", "close"),
    StreamReader: ("is_eof", "read_nowait", "readany", "total_bytes"),
    Server: ("connections", "shutdown", "handler_cancellation"),
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
    "BaseConnector.connect": (BaseConnector.connect, ["self", "req", "traces", "timeout"]),
    "ResponseHandler": (ResponseHandler.__init__, ["self", "loop"]),
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


# Connections to replicas


class Bytes:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: list[BaseException | None] = []

    def feed(self, data: bytes) -> None:
        self.data += data

    def lost(self, error: BaseException | None) -> None:
        self.ended.append(error)


NO_TIMEOUT = ClientTimeout(total=None)


@pytest_asyncio.fixture
async def connector() -> AsyncIterator[Connector]:
    one = Connector(limit=0, limit_per_host=0, keepalive_timeout=30)
    yield one
    await one.close()


async def exchange_bytes(connection: Connection) -> tuple[ReplicaConnection, Bytes]:
    """Send a request over a connection and wait for its answer."""
    protocol = connection.protocol
    assert isinstance(protocol, ReplicaConnection)
    assert protocol.transport is not None
    receiver = Bytes()
    protocol.receiver = receiver
    protocol.transport.write(chat(stream=False))
    await eventually(lambda: receiver.data.endswith(OK), "the answer")
    protocol.receiver = None
    return protocol, receiver


async def test_the_connector_makes_connections_of_our_kind(connector: Connector) -> None:
    async with FakeReplica() as replica:
        connection = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        _, receiver = await exchange_bytes(connection)
        connection.close()

    assert receiver.data == OK


async def test_a_released_connection_is_used_again_by_the_same_template(connector: Connector) -> None:
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        first = await connector.open(template, NO_TIMEOUT)
        protocol, _ = await exchange_bytes(first)
        first.release()
        second = await connector.open(template, NO_TIMEOUT)
        assert second.protocol is protocol
        await exchange_bytes(second)
        second.close()
        third = await connector.open(template, NO_TIMEOUT)
        assert third.protocol is not protocol
        third.close()

        assert [one.connection.number for one in await replica.received(2)] == [1, 1]


async def test_an_idle_connection_can_be_taken_without_waiting(connector: Connector) -> None:
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        key = template.connection_key
        assert connector.take_idle(key) is None
        first = await connector.open(template, NO_TIMEOUT)
        protocol, _ = await exchange_bytes(first)
        assert connector.take_idle(key) is None
        first.release()
        taken = connector.take_idle(key)
        assert taken is not None
        assert taken.protocol is protocol
        assert connector.take_idle(key) is None
        await exchange_bytes(taken)
        taken.release()

        again = await connector.open(template, NO_TIMEOUT)
        assert again.protocol is protocol
        again.close()


async def test_a_closed_connection_is_not_taken(connector: Connector) -> None:
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        connection = await connector.open(template, NO_TIMEOUT)
        protocol, _ = await exchange_bytes(connection)
        connection.release()
        replica.reset_all()
        await eventually(lambda: protocol.transport is None, "it is closed")
        assert connector.take_idle(template.connection_key) is None


async def test_a_connection_that_was_idle_for_too_long_is_not_taken() -> None:
    connector = Connector(limit=0, limit_per_host=0, keepalive_timeout=0.05)
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        connection = await connector.open(template, NO_TIMEOUT)
        await exchange_bytes(connection)
        connection.release()
        await asyncio.sleep(0.1)
        assert connector.take_idle(template.connection_key) is None
    await connector.close()


@pytest.mark.parametrize("limits", [{"limit": 1, "limit_per_host": 0}, {"limit": 0, "limit_per_host": 1}])
async def test_a_taken_connection_counts_against_the_limits(limits: dict[str, int]) -> None:
    connector = Connector(keepalive_timeout=30, **limits)
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        (await connector.open(template, NO_TIMEOUT)).release()
        taken = connector.take_idle(template.connection_key)
        assert taken is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connector.open(template, NO_TIMEOUT), 0.05)
        taken.release()
        (await asyncio.wait_for(connector.open(template, NO_TIMEOUT), 5)).close()
    await connector.close()


async def test_a_connector_keeps_its_books_under_the_names_that_are_used(connector: Connector) -> None:
    used = {"_acquired", "_acquired_per_host", "_conns", "_factory", "_keepalive_timeout", "_limit_per_host"}
    assert used <= set(vars(connector))


async def test_connections_are_kept_apart_by_address_not_by_path(connector: Connector) -> None:
    keys = [
        connector.template(url).connection_key
        for url in ("http://h:1/a", "http://h:1/b?c", "http://h:2", "https://h:1")
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


async def test_a_template_holds_nothing_of_a_request(connector: Connector) -> None:
    template = connector.template("http://h:1")
    assert isinstance(template, ClientRequest)
    assert template.proxy is None


async def test_bytes_that_nobody_asked_for_end_an_idle_connection(connector: Connector) -> None:
    async with FakeReplica() as replica:
        template = connector.template(replica.settings["url"])
        connection = await connector.open(template, NO_TIMEOUT)
        protocol, _ = await exchange_bytes(connection)
        connection.release()
        await replica.connections[0].send(b"HTTP/1.1 200 OK\r\n\r\n")
        await eventually(lambda: protocol.transport is None, "it is closed")
        fresh = await connector.open(template, NO_TIMEOUT)
        assert fresh.protocol is not protocol
        fresh.close()


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_the_end_of_a_connection_is_told_once_with_its_cause(connector: Connector, how: str) -> None:
    closed: list[int] = []
    async with FakeReplica() as replica:
        connection = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        protocol, _ = await exchange_bytes(connection)
        protocol.receiver = receiver = Bytes()
        protocol.on_closed = lambda: closed.append(1)
        wire = replica.connections[0].wire
        if how == "fin":
            wire.close()
        else:
            wire.reset()
        await eventually(lambda: receiver.ended, "the end is told")
        connection.close()

    assert (receiver.ended[0] is None) == (how == "fin")
    assert (len(receiver.ended), len(closed)) == (1, 1)


async def test_closing_a_connection_does_not_wait_for_its_peer_to_read(connector: Connector) -> None:
    async with FakeReplica(read_bodies=False) as replica:
        connection = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        protocol = connection.protocol
        assert isinstance(protocol, ReplicaConnection)
        assert protocol.transport is not None
        protocol.receiver = receiver = Bytes()
        await eventually(lambda: replica.connections, "it is connected")
        replica.connections[0].wire.pause()
        transport = protocol.transport
        transport.write(b"x" * (32 << 20))
        assert transport.get_write_buffer_size() > 0
        connection.close()
        await eventually(lambda: receiver.ended, "it is closed all the same")


async def test_a_refused_connection_says_so(connector: Connector) -> None:
    replica = FakeReplica()
    with pytest.raises(aiohttp.ClientConnectorError) as refused:
        await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
    assert isinstance(refused.value, OSError)
    assert refused.value.errno is not None
    await replica.stop()


async def test_a_connection_that_does_not_come_about_times_out(connector: Connector) -> None:
    async with FakeReplica() as replica:
        await replica.stop_answering_connects()
        with pytest.raises(TimeoutError):
            await connector.open(
                connector.template(replica.settings["url"]), ClientTimeout(total=None, sock_connect=0.05)
            )


async def test_the_limits_are_those_that_were_set() -> None:
    unlimited = Connector(limit=0, limit_per_host=0, keepalive_timeout=3)
    limited = Connector(limit=7, limit_per_host=3, keepalive_timeout=3)
    assert (unlimited.limit, unlimited.limit_per_host) == (0, 0)
    assert (limited.limit, limited.limit_per_host) == (7, 3)
    await unlimited.close()
    await limited.close()


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


async def test_a_handler_that_says_so_ends_the_connection(start_front: StartFront) -> None:
    async def close(one: InboundRequest) -> bool:
        return answer(one, b"x" * 500_000, close=True)

    front = await start_front(close)
    client = await front.connect()
    assert len((await client.ask(GET)).body.entity) == 500_000
    assert await client.gone() == "fin"
    await eventually(lambda: not front.connections, "nothing is left of it")


async def hang(_: InboundRequest) -> bool:
    await asyncio.Event().wait()
    return False


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
