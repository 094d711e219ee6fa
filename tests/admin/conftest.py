"""An admin port over two ready replicas that lead nowhere."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web

from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.api import AdminApi, Records
from replicarouter.admin.requests import OwnRequests
from replicarouter.admission.decisions import Decisions
from replicarouter.settings import AdminSettings
from replicarouter.telemetry.recent import RecentErrors
from tests.fakes.client import HOST, Answer, Client, request
from tests.scene import a_fleet
from tests.telemetry.conftest import Watched

OWN_PORT = 18080
"""Where the main port of this router would be."""

PER_SECOND = 50


@dataclass(slots=True, eq=False)
class Door:
    """An admin port, and what it looks into."""

    watched: Watched
    port: int
    api: AdminApi
    decisions: Decisions
    recent: RecentErrors

    async def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        return await self.send(request(method, target, headers=headers))

    async def post(self, target: str, document: Any = None, **headers: str) -> Answer:
        """POST without a body, or with a JSON one (bytes: as they are)."""
        body = document if document is None or isinstance(document, bytes) else orjson.dumps(document)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.send(request("POST", target, body, fields))

    async def send(self, raw: bytes) -> Answer:
        client = await Client.connect(self.port)
        try:
            return await client.ask(raw)
        finally:
            await client.closed()

    async def rows(self, **headers: str) -> dict[str, dict[str, Any]]:
        """The replicas by name."""
        document = (await self.ask("/admin/replicas", **headers)).json()
        return {row["name"]: row for row in document["replicas"]}


Open = Callable[..., Awaitable[Door]]


@pytest.fixture
def watched() -> Watched:
    """Two ready replicas under a clock that stands still, and all that is read from them."""
    return Watched(a_fleet("a", "b"))


@pytest_asyncio.fixture
async def open_door() -> AsyncIterator[Open]:
    """Open an admin port; options are settings of `admin`."""
    runners: list[web.AppRunner] = []

    async def start(**options: Any) -> Door:
        watched = Watched(a_fleet("a", "b"))
        answers = OwnAnswers(watched.fleet, lambda: b"", version="9.9", draining=lambda: False)
        decisions = Decisions(PER_SECOND)
        recent = RecentErrors()
        api = AdminApi(
            AdminSettings(**options),
            watched.sources,
            answers,
            Records(decisions, recent, OwnRequests(watched.fleet.ledger, watched.sources.clock)),
            own_ports=lambda: (OWN_PORT,),
        )
        runner = web.AppRunner(api.application(), access_log=None, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        return Door(watched, runner.addresses[0][1], api, decisions, recent)

    yield start
    for runner in runners:
        await runner.cleanup()
