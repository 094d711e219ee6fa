"""Connections are made as aiohttp makes them, whichever way."""

import inspect
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientTimeout
from aiohttp.client_proto import ResponseHandler

from replicarouter.fleet.one_step import OneStepConnector
from tests.fakes.replica import OK, FakeReplica, reply


def test_a_connector_makes_its_connections_where_they_are_made_here() -> None:
    method = inspect.signature(aiohttp.TCPConnector._wrap_create_connection)
    assert list(method.parameters)[:5] == ["self", "args", "addr_infos", "req", "timeout"]


async def get(connector: aiohttp.TCPConnector, url: str, **timeout: float) -> int:
    async with (
        aiohttp.ClientSession(connector=connector, timeout=ClientTimeout(total=None, **timeout)) as session,
        session.get(url) as response,
    ):
        return response.status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_aiohttp_asks_for_a_connection_as_it_did(host: str) -> None:
    asked: list[tuple[int, Any, Any]] = []

    class Telling(OneStepConnector):
        async def _wrap_create_connection(self, *args: Any, **options: Any) -> tuple[Any, ResponseHandler]:
            asked.append((len(args), options["ssl"], options["timeout"].sock_connect))
            return await super()._wrap_create_connection(*args, **options)

    async with FakeReplica(reply(OK)) as replica:
        port = replica.settings["url"].rpartition(":")[2]
        assert await get(Telling(), f"http://{host}:{port}/", sock_connect=5.0) == 200
    assert asked
    assert set(asked) == {(1, None, 5.0)}


async def kind_of_failure(connector: aiohttp.TCPConnector, url: str, **timeout: float) -> tuple[Any, ...]:
    with pytest.raises((aiohttp.ClientError, OSError)) as failure:
        await get(connector, url, **timeout)
    error = failure.value
    return type(error), getattr(error, "errno", None)


async def test_a_refused_connection_fails_as_aiohttps_does() -> None:
    replica = FakeReplica()
    url = replica.settings["url"]
    ours = await kind_of_failure(OneStepConnector(), url)
    assert ours == await kind_of_failure(aiohttp.TCPConnector(), url)
    assert ours[1] is not None
    await replica.stop()


async def test_a_connection_that_does_not_come_about_times_out_as_aiohttps_does() -> None:
    async with FakeReplica() as replica:
        await replica.stop_answering_connects()
        url = replica.settings["url"]
        ours = await kind_of_failure(OneStepConnector(), url, sock_connect=0.05)
        assert ours == await kind_of_failure(aiohttp.TCPConnector(), url, sock_connect=0.05)
