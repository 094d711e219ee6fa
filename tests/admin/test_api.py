"""The operator's door over a real port: what it shows, and to whom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from prometheus_client import CollectorRegistry

from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi
from replicarouter.settings import AdminSettings
from tests.fakes.client import HOST, Answer, Client, request
from tests.scene import a_fleet, an_exchange
from tests.telemetry.conftest import Watched


class Door:
    """An admin port, and what it looks into."""

    def __init__(self, watched: Watched, port: int) -> None:
        self.watched = watched
        self.port = port

    async def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        client = await Client.connect(self.port)
        try:
            return await client.ask(request(method, target, headers=headers))
        finally:
            await client.closed()


Open = Callable[..., Awaitable[Door]]


@pytest_asyncio.fixture
async def open_door() -> AsyncIterator[Open]:
    """Open an admin port; options are settings of `admin`."""
    runners: list[web.AppRunner] = []

    async def start(**options: Any) -> Door:
        watched = Watched(a_fleet("a", "b"))
        answers = OwnAnswers(watched.fleet, CollectorRegistry(), version="9.9", draining=lambda: False)
        api = AdminApi(AdminSettings(**options), watched.sources, answers)
        runner = web.AppRunner(api.application(), access_log=None, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        return Door(watched, runner.addresses[0][1])

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_the_ledger_is_shown(open_door: Open) -> None:
    door = await open_door()
    door.watched.fleet.ledger.receiving = 3
    document = (await door.ask("/admin/ledger")).json()

    assert document["receiving"] == document["accepted"] == 3
    assert [row["name"] for row in document["replicas"]] == ["a", "b"]


async def test_replicas_are_shown(open_door: Open) -> None:
    document = (await (await open_door()).ask("/admin/replicas")).json()
    assert [row["state"] for row in document["replicas"]] == ["ready", "ready"]


async def test_requests_in_flight_are_shown_oldest_first(open_door: Open) -> None:
    door = await open_door()
    for name in "ba":
        door.watched.fleet.ledger.in_flight[name] = an_exchange(client_id=name, upstream_id=name)
    document = (await door.ask("/admin/requests")).json()

    assert [row["id"] for row in document["requests"]] == ["b", "a"]


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics"])
async def test_the_routers_own_answers_are_here_too(open_door: Open, path: str) -> None:
    assert (await (await open_door()).ask(path)).status == 200


async def test_an_unknown_path_is_404(open_door: Open) -> None:
    (await (await open_door()).ask("/admin/nothing")).refused(404, "unknown_path")


async def test_another_method_is_405(open_door: Open) -> None:
    answer = await (await open_door()).ask("/admin/ledger", "DELETE")
    answer.refused(405, "method_not_allowed")
    assert answer.head.get("allow")


# Who may come in


@pytest.mark.parametrize(
    "path", ["/admin/ledger", "/admin/replicas", "/admin/requests", "/metrics", "/version"]
)
async def test_with_a_token_nobody_enters_without_it(open_door: Open, path: str) -> None:
    door = await open_door(token="secret")
    (await door.ask(path)).refused(401, "invalid_api_key")
    assert (await door.ask(path, Authorization="Bearer secret")).status == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_token(open_door: Open, path: str) -> None:
    assert (await (await open_door(token="secret")).ask(path)).status == 200


WRONG = [
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    "Bearer secretx",
    "Basic secret",
    "secret",
    "Bearer  secret",
    "",
]


@pytest.mark.parametrize("given", WRONG)
async def test_a_wrong_token_is_refused(open_door: Open, given: str) -> None:
    door = await open_door(token="secret")
    (await door.ask("/admin/ledger", Authorization=given)).refused(401, "invalid_api_key")


@pytest.mark.parametrize("given", ["bearer secret", "BEARER secret"])
async def test_the_scheme_may_be_spelled_as_one_likes(open_door: Open, given: str) -> None:
    assert (await (await open_door(token="secret")).ask("/admin/ledger", Authorization=given)).status == 200


async def test_with_a_token_any_name_of_the_host_will_do(open_door: Open) -> None:
    door = await open_door(token="secret")
    answer = await door.ask("/admin/ledger", Authorization="Bearer secret", Host="router.example")
    assert answer.status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:8081", "[::1]", "[::1]:9"]
)
async def test_without_a_token_loopback_names_enter(open_door: Open, host: str) -> None:
    assert (await (await open_door()).ask("/admin/ledger", Host=host)).status == 200


FOREIGN = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8081",
    "",
    "127.0.0.2",
    "user@evil",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_without_a_token_other_names_do_not(open_door: Open, host: str) -> None:
    (await (await open_door()).ask("/admin/ledger", Host=host)).refused(401, "invalid_api_key")


ORIGINS = {
    "http://localhost:3000": 200,
    "http://127.0.0.1": 200,
    "http://evil.example": 401,
    "https://127.0.0.1.evil.example": 401,
    "null": 401,
    "": 401,
    "file://": 401,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_without_a_token_pages_of_other_sites_do_not(open_door: Open, origin: str) -> None:
    answer = await (await open_door()).ask("/admin/ledger", Origin=origin)
    assert answer.status == ORIGINS[origin]


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({}, {"Host": "["}),
        ({}, {"Origin": "http://["}),
        ({"token": "secret"}, {"Authorization": "Bearer \xff"}),
    ],
)
async def test_odd_fields_are_refused_like_any_other(
    open_door: Open, options: dict[str, str], headers: dict[str, str]
) -> None:
    (await (await open_door(**options)).ask("/admin/ledger", **headers)).refused(401, "invalid_api_key")


async def test_a_reading_that_fails_is_an_error_of_ours_and_is_logged(
    open_door: Open, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door()
    door.watched.fleet.replicas.append(None)  # type: ignore[arg-type]
    (await door.ask("/admin/ledger")).refused(500, "internal_error")

    (record,) = caplog.records
    assert record.__dict__["path"] == "/admin/ledger"


async def test_many_can_look_at_once(open_door: Open) -> None:
    door = await open_door()
    answers = await asyncio.gather(*(door.ask("/admin/ledger") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
