"""Asking a replica about itself: whole answers within a limit, and connections used again."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Literal

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection

from replicarouter.fleet.fetch import Answer, Client
from replicarouter.fleet.one_step import OneStepConnector
from tests.fakes.replica import Connection as FakeConnection
from tests.fakes.replica import FakeReplica, Received, reply
from tests.fakes.wire import eventually
from tests.fleet.conftest import Engine

MOST = 1 << 20


# What is taken from aiohttp beyond its documented API

ATTRIBUTES = {
    ResponseHandler: ("is_connected", "read", "set_response_params", "should_close", "transport"),
    Connection: ("close", "protocol", "release"),
    ClientRequest: ("connection_key", "request_info"),
}


@pytest.mark.parametrize("kind", ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_a_class_has_the_names_that_are_used(kind: type) -> None:
    slots = {name for one in kind.__mro__ for name in getattr(one, "__slots__", ())}
    assert [name for name in ATTRIBUTES[kind] if name not in slots and name not in dir(kind)] == []


# Questions and answers


@pytest_asyncio.fixture
async def keeper() -> AsyncIterator[Client]:
    """A client as the router makes it for scrapes: it keeps connections."""
    one = Client(OneStepConnector(limit=0, keepalive_timeout=30.0))
    yield one
    await one.close()


async def ask(client: Client, url: str, path: str, most: int = MOST, key: str = "") -> Answer:
    with client.visit(client.place(url)) as visit:
        return await visit.ask(path, most=most, key=key)


@pytest.mark.parametrize("pieces", [(), (b"one",), (b"one", b"two", b"three"), (b"x" * 300_000, b"y")])
async def test_an_answer_is_read_to_its_end(
    engine: Engine, client: Client, pieces: tuple[bytes, ...]
) -> None:
    engine.says("/page", *pieces)
    assert await ask(client, engine.url, "/page") == Answer(200, b"".join(pieces))


async def test_an_answer_that_comes_slowly_is_waited_for(engine: Engine, client: Client) -> None:
    engine.held = asyncio.Event()
    engine.says("/page", b"one", b"two")
    reading = asyncio.ensure_future(ask(client, engine.url, "/page", 100))
    await eventually(lambda: engine.times("/page"), "the answer is on its way")
    await asyncio.wait((reading,), timeout=0.05)
    assert not reading.done()
    engine.held.set()
    assert (await reading).body == b"onetwo"


async def test_a_page_beyond_the_limit_is_not_read_on(engine: Engine, client: Client) -> None:
    engine.says("/page", b"x" * (4 << 20))
    read = (await ask(client, engine.url, "/page")).body

    assert 1 << 20 <= len(read) < 3 << 20


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_an_answer_that_breaks_off_is_an_error(client: Client, how: Literal["fin", "rst"]) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none"
    async with FakeReplica(reply(cut, then=how)) as replica:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await ask(client, replica.settings["url"], "/page", 100)


@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
            b"onetwo",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none", b"one"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
            % len(gzip.compress(b"one"))
            + gzip.compress(b"one"),
            b"one",
        ),
    ],
    ids=["chunks", "an interim answer", "nothing", "packed unasked"],
)
async def test_every_framing_is_understood(client: Client, wire: bytes, answer: bytes) -> None:
    async with FakeReplica(reply(wire)) as replica:
        assert await ask(client, replica.settings["url"], "/page") == Answer(200, answer)


async def test_a_body_may_end_with_the_connection(client: Client) -> None:
    async with FakeReplica(reply(b"HTTP/1.0 200 OK\r\n\r\none", then="fin")) as replica:
        assert await ask(client, replica.settings["url"], "/page") == Answer(200, b"one")


async def test_what_is_no_http_is_an_error(client: Client) -> None:
    async with FakeReplica(reply(b"SSH-2.0-OpenSSH_9.6\r\n")) as replica:
        with pytest.raises(aiohttp.ClientResponseError):
            await ask(client, replica.settings["url"], "/page")


async def test_the_head_of_an_answer_is_enough_where_no_body_is_wanted(
    engine: Engine, client: Client
) -> None:
    engine.held = asyncio.Event()
    engine.says("/health", b"one", b"two")
    answer = await asyncio.wait_for(ask(client, engine.url, "/health", 0), 5)

    assert answer == Answer(200)


@pytest.mark.parametrize("status", [404, 302, 503])
async def test_the_body_of_another_status_is_not_waited_for(
    engine: Engine, client: Client, status: int
) -> None:
    engine.held = asyncio.Event()
    engine.says("/page", b"one", b"two", status=status)

    assert await asyncio.wait_for(ask(client, engine.url, "/page"), 5) == Answer(status)


async def test_questions_of_one_visit_share_a_connection_and_visits_do_not(
    engine: Engine, client: Client
) -> None:
    engine.says("/page", b"one")
    place = client.place(engine.url)
    for _ in range(2):
        with client.visit(place) as visit:
            for _ in range(3):
                assert (await visit.ask("/page", most=MOST)).body == b"one"

    assert engine.times("/page") == 6
    assert engine.connections == 2


async def test_visits_share_a_connection_where_the_connector_keeps_it(engine: Engine, keeper: Client) -> None:
    engine.says("/page", b"one")
    for _ in range(3):
        assert (await ask(keeper, engine.url, "/page")).body == b"one"

    assert engine.connections == 1


async def test_after_an_answer_that_was_not_read_to_its_end_comes_a_new_connection(
    engine: Engine, keeper: Client
) -> None:
    engine.says("/long", b"x" * (4 << 20))
    engine.says("/page", b"one")
    with keeper.visit(keeper.place(engine.url)) as visit:
        assert len((await visit.ask("/long", most=10)).body) >= 10
        assert await visit.ask("/page", most=MOST) == Answer(200, b"one")
    assert engine.connections == 2


async def test_a_kept_connection_that_the_replica_closed_is_replaced(engine: Engine, keeper: Client) -> None:
    engine.says("/page", b"one")
    await ask(keeper, engine.url, "/page")
    port = int(engine.url.rpartition(":")[2])
    await engine.stop()
    await engine.listen(port)

    assert await ask(keeper, engine.url, "/page") == Answer(200, b"one")


async def test_it_is_asked_once_more_when_the_connection_ends_without_an_answer(client: Client) -> None:
    async def closes_the_first(request: Received, connection: FakeConnection) -> None:
        page = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none")
        await (page if connection.number > 1 else reply(b"", then="fin"))(request, connection)

    async with FakeReplica(closes_the_first) as replica:
        assert await ask(client, replica.settings["url"], "/page") == Answer(200, b"one")
        assert len(replica.requests) == 2


async def test_a_replica_that_never_answers_is_an_error_after_two_questions(client: Client) -> None:
    async with FakeReplica(reply(b"", then="fin")) as replica:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(client, replica.settings["url"], "/page")
        assert len(replica.requests) == 2


async def test_a_closed_port_is_told_as_such(client: Client) -> None:
    engine = Engine()
    await engine.listen()
    await engine.stop()
    with pytest.raises(aiohttp.ClientConnectorError) as failure:
        await ask(client, engine.url, "/page")
    assert isinstance(failure.value.os_error, ConnectionRefusedError)


async def test_a_name_is_asked_like_an_address(engine: Engine, client: Client) -> None:
    engine.says("/page", b"one")
    port = engine.url.rpartition(":")[2]

    assert (await ask(client, f"http://localhost:{port}", "/page")).body == b"one"
