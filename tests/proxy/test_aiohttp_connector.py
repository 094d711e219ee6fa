"""What the router takes from aiohttp's connector beyond its documented API. A failure here after an upgrade
says what has changed; until it is understood, the version range in pyproject.toml must not grow."""

import asyncio
import gc
import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import BaseConnector, Connection

from replicarouter.proxy.aiohttp_connector import Connector, Pooled, ReplicaConnection
from replicarouter.proxy.descriptors import Descriptors
from tests.fakes.certificates import Authority, trusting
from tests.fakes.client import HOST, chat
from tests.fakes.replica import OK, FakeReplica
from tests.fakes.wire import LINGER_NOT_AT_ALL, eventually

# Names and signatures

ATTRIBUTES = {
    ResponseHandler: (
        *("abort", "close", "connection_lost", "data_received", "should_close", "closed"),
        *("resume_writing", "transport", "writing_paused"),
    ),
    Connection: ("protocol",),
}


@pytest.mark.parametrize("kind", ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_a_class_has_the_names_that_are_used(kind: type) -> None:
    slots = {name for one in kind.__mro__ for name in getattr(one, "__slots__", ())}
    assert [name for name in ATTRIBUTES[kind] if name not in slots and name not in dir(kind)] == []


SIGNATURES: dict[str, tuple[Callable[..., object], list[str]]] = {
    "BaseConnector._release": (BaseConnector._release, ["self", "key", "protocol", "should_close"]),
    "BaseConnector.connect": (BaseConnector.connect, ["self", "req", "traces", "timeout"]),
    "ResponseHandler": (ResponseHandler.__init__, ["self", "loop"]),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_method_takes_what_it_is_given(name: str) -> None:
    method, parameters = SIGNATURES[name]
    assert list(inspect.signature(method).parameters) == parameters


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


async def exchange_bytes(connection: Pooled) -> tuple[ReplicaConnection, Bytes]:
    """Send a request over a connection and wait for its answer."""
    protocol = connection.protocol
    assert protocol.transport is not None
    receiver = Bytes()
    protocol.receiver = receiver
    protocol.transport.write(chat(stream=False))
    await eventually(lambda: receiver.data.endswith(OK), "the answer")
    protocol.receiver = None
    return protocol, receiver


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be told")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_reads_need_not_be_acknowledged_one_by_one(secure: bool, tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    connector = Connector(
        limit=0, limit_per_host=0, keepalive_timeout=30, ssl=trusting(pair.cert) if secure else True
    )
    async with FakeReplica(tls=pair.server() if secure else None) as replica:
        connection = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        transport = connection.protocol.transport
        assert transport is not None
        connection.protocol.acknowledge_in_pairs()
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
        connection.close()
        connection.protocol.acknowledge_in_pairs()
    await connector.close()


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


async def test_a_connection_is_ours_although_aiohttp_has_forgotten_whom_it_gave_it(
    connector: Connector,
) -> None:
    async with FakeReplica() as replica:
        taken = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        gc.collect()
        assert connector.in_use == 1
        await exchange_bytes(taken)
        taken.close()
        assert connector.in_use == 0


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


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("how", ["closes", "speaks", "breaks off"])
async def test_a_connection_is_not_taken_on_which_something_has_come_that_was_not_read_yet(
    connector: Connector, how: str, later: bool
) -> None:
    with socket.create_server((HOST, 0)) as server:
        template = connector.template(f"http://{HOST}:{server.getsockname()[1]}")
        connections = [await connector.open(template, NO_TIMEOUT) for _ in range(2)]
        peers = [server.accept()[0] for _ in range(2)]
        for connection in connections:
            connection.release()
        for _ in range(3 * later):
            await asyncio.sleep(0)
        first, other = (connection.protocol for connection in connections)
        if how == "speaks":
            peers[0].send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        elif how == "breaks off":
            peers[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT_AT_ALL)
        if how != "speaks":
            peers[0].close()
        # The event loop has read nothing since.
        assert first.transport is not None
        assert not first.transport.is_closing()
        assert (first.quiet, other.quiet) == (False, True)
        taken = connector.take_idle(template.connection_key, wary=later)
        assert taken is not None
        assert taken.protocol is other
        await eventually(lambda: first.transport is None, "it is closed")
        for peer in peers:
            peer.close()


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


@pytest.mark.parametrize(("limit", "per_host"), [(1, 0), (0, 1)])
async def test_a_taken_connection_counts_against_the_limits(limit: int, per_host: int) -> None:
    connector = Connector(keepalive_timeout=30, limit=limit, limit_per_host=per_host)
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
    used |= {"_cleanup_handle", "_closed", "_waiters"}
    assert used <= set(vars(connector))


async def test_connections_count_against_the_descriptors() -> None:
    """The same error as the operating system's, so that it is answered in the same way."""
    descriptors = Descriptors(2)
    one = Connector(limit=0, limit_per_host=0, keepalive_timeout=30, descriptors=descriptors)
    async with FakeReplica() as replica:
        template = one.template(replica.settings["url"])
        first = await one.open(template, NO_TIMEOUT)
        assert (descriptors.left, descriptors.scarce) == (1, False)
        second = await one.open(template, NO_TIMEOUT)
        with pytest.raises(OSError, match="Too many open files"):
            await one.open(template, NO_TIMEOUT)
        assert descriptors.left == 0
        first.release()
        assert descriptors.left == 0
        second.close()
        assert descriptors.left == 1
    await one.close()


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


async def test_a_replica_that_takes_bytes_again_is_told_of(connector: Connector) -> None:
    writable = asyncio.Event()
    async with FakeReplica(read_bodies=False) as replica:
        connection = await connector.open(connector.template(replica.settings["url"]), NO_TIMEOUT)
        protocol = connection.protocol
        assert isinstance(protocol, ReplicaConnection)
        assert protocol.transport is not None
        protocol.receiver = Bytes()
        protocol.on_writable = writable.set
        await eventually(lambda: replica.connections, "it is connected")
        replica.connections[0].wire.pause()
        protocol.transport.write(b"x" * (16 << 20))
        assert protocol.writing_paused
        assert not writable.is_set()
        replica.connections[0].wire.resume()
        await asyncio.wait_for(writable.wait(), 5)
        assert not protocol.writing_paused
        connection.close()
        await eventually(lambda: protocol.on_writable is None, "it is forgotten with the connection")


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
