"""The operator's door: a small HTTP API on a port of its own, for people and `replicarouter replicas`."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from aiohttp import web

from replicarouter.admin.answers import OwnAnswers
from replicarouter.admin.guard import Guard
from replicarouter.admin.live_feed import LiveFeed
from replicarouter.admin.operations import Operations
from replicarouter.admin.page_files import PAGE_PATHS, PageFiles
from replicarouter.admin.picture import Picture
from replicarouter.admin.requests import Requests
from replicarouter.admin.urls import UrlRule
from replicarouter.admission.decisions import CAPACITY, Decisions
from replicarouter.errors import (
    BodyTooLarge,
    InternalError,
    MethodNotAllowed,
    RequestTimeout,
    RouterError,
    UnknownPath,
    UnknownRequest,
)
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.settings import AdminSettings
from replicarouter.telemetry.collector import Sources
from replicarouter.telemetry.recent import RecentErrors
from replicarouter.telemetry.report import ledger_report, replica_report

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY = 64 * 1024
"""Most bytes of a request body: an entry of `replicas:` is far smaller."""

LISTED = 100
"""Decisions that are listed without an id: enough to find a fresh one."""

BODY_TIMEOUT = 10.0
"""Seconds for such a body to arrive."""


@dataclass(frozen=True, slots=True)
class Records:
    """What is kept of single requests: decisions about them, how they failed, and those in flight."""

    decisions: Decisions
    recent: RecentErrors
    requests: Requests


class AdminApi:
    """Views of the ledger, the replicas and the requests in flight, and what may be done to them.

    `own_ports` are those the router listens on, which no replica may have.
    """

    def __init__(
        self,
        settings: AdminSettings,
        sources: Sources,
        answers: OwnAnswers,
        records: Records,
        own_ports: Callable[[], Collection[int]],
    ) -> None:
        self._sources = sources
        self._answers = answers
        self._decisions = records.decisions
        self._recent = records.recent
        self._in_flight = records.requests
        self._page = PageFiles()
        picture = Picture(sources, records.recent, draining=lambda: answers.draining)
        self._live = LiveFeed(picture.draw, picture.begin)
        self._own_ports = own_ports
        self._token = settings.token
        self.reconfigure(settings)

    def reconfigure(self, settings: AdminSettings) -> None:
        """Take over another token and other patterns; host and port are the caller's matter."""
        self._guard = Guard(settings)
        if settings.token != self._token:
            # Who watches has shown a token that counts no more.
            self._live.cut()
            self._token = settings.token
        urls = UrlRule(settings.allowed_urls, self._own_ports)
        self._operations = Operations(self._sources.fleet, urls)

    def application(self) -> web.Application:
        """The aiohttp application to serve."""
        application = web.Application(middlewares=[self._enter], client_max_size=MAX_BODY)
        router = application.router
        router.add_get("/admin/ledger", self._ledger)
        router.add_get("/admin/replicas", self._replicas)
        router.add_post("/admin/replicas", self._add)
        router.add_post("/admin/replicas/{name}/drain", self._drain)
        router.add_post("/admin/replicas/{name}/undrain", self._undrain)
        router.add_delete("/admin/replicas/{name}", self._remove)
        router.add_get("/admin/requests", self._requests)
        router.add_post("/admin/requests/{id}/cancel", self._cancel)
        router.add_get("/admin/decisions", self._latest_decisions)
        router.add_get("/admin/decisions/{id}", self._decisions_of)
        router.add_get("/admin/errors", self._errors)
        router.add_get("/admin/live", self._live.watch, allow_head=False)
        for path in PAGE_PATHS:
            router.add_get(path, self._page.answer)
        for path in ("/metrics", "/health", "/ready", "/version"):
            router.add_get(path, self._own)
        application.on_shutdown.append(self._end_live)
        return application

    async def _end_live(self, _application: web.Application) -> None:
        await self._live.close()

    @web.middleware
    async def _enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may come in, and turn every failure into error JSON."""
        refusal = self._guard.refusal(request)
        if refusal is not None:
            return _written(error_answer(refusal))
        try:
            return await handler(request)
        except RouterError as error:
            return _written(error_answer(error))
        except web.HTTPException as error:
            return _written(error_answer(_meaning(error)))
        except Exception:
            log.exception("admin request failed", extra={"path": request.path})
            return _written(error_answer(InternalError("The router failed on this request.")))

    async def _ledger(self, _request: web.Request) -> web.StreamResponse:
        await self._in_flight.tell()
        return _json(ledger_report(self._sources))

    async def _replicas(self, _request: web.Request) -> web.StreamResponse:
        return _json({"replicas": [self._row(replica) for replica in self._sources.fleet]})

    async def _add(self, request: web.Request) -> web.StreamResponse:
        replica = await self._operations.add(await _body(request))
        return _json(self._row(replica), status=201)

    async def _drain(self, request: web.Request) -> web.StreamResponse:
        replica = self._operations.drain(request.match_info["name"])
        return _json(self._row(replica), status=202 if replica.outstanding else 200)

    async def _undrain(self, request: web.Request) -> web.StreamResponse:
        return _json(self._row(self._operations.undrain(request.match_info["name"])))

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        leaving = self._operations.remove(request.match_info["name"])
        return web.Response(status=204) if leaving is None else _json(self._row(leaving), status=202)

    async def _requests(self, _request: web.Request) -> web.StreamResponse:
        return _json({"requests": await self._in_flight.rows()})

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        request_id = request.match_info["id"]
        if not await self._in_flight.cancel(request_id):
            raise UnknownRequest("No request in flight has this id; GET /admin/requests lists them.")
        return _json({"id": request_id}, status=202)

    async def _errors(self, _request: web.Request) -> web.StreamResponse:
        """The latest failures, and apart from them the clients that left; with the time of day, as logs and
        clients know no other."""
        await self._in_flight.tell()
        now = self._sources.clock()
        errors, departures = self._recent.failures(now), self._recent.departures(now)
        today = time.time()
        for row in (*errors, *departures):
            row["at"] = datetime.fromtimestamp(today - row["age"], UTC).isoformat(timespec="milliseconds")
        return _json({"errors": errors, "departures": departures})

    async def _latest_decisions(self, _request: web.Request) -> web.StreamResponse:
        await self._in_flight.tell()
        latest = self._decisions.latest(LISTED, self._sources.clock())
        return _json({"decisions": list(map(orjson.Fragment, latest))})

    async def _decisions_of(self, request: web.Request) -> web.StreamResponse:
        request_id = request.match_info["id"]
        await self._in_flight.tell()
        attempts = self._decisions.of(request_id, self._sources.clock())
        if not attempts:
            raise UnknownRequest(
                "No decision is kept for a request of this id. They are sampled, at most "
                f"{self._decisions.per_second} a second (setting policy_options.decisions_per_second), "
                f"and only the latest are kept, {CAPACITY} at most; GET /admin/decisions lists some."
            )
        return _json({"request_id": request_id, "attempts": list(map(orjson.Fragment, attempts))})

    async def _own(self, request: web.Request) -> web.StreamResponse:
        answer = self._answers.find(request.path, request.query_string)
        if answer is None:
            return _written(error_answer(UnknownPath("This path is not part of the admin API.")))
        return _written(answer)

    def _row(self, replica: Replica) -> dict[str, object]:
        return replica_report(replica, self._sources, self._sources.clock())


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await request.read()
    except TimeoutError:
        raise RequestTimeout("The body did not arrive in time.") from None


def _meaning(error: web.HTTPException) -> RouterError:
    """What an answer of the library's says, in our words."""
    allow = error.headers.get("Allow")
    if allow is not None:
        return MethodNotAllowed(f"Use {allow} here.", allow=allow)
    if error.status == BodyTooLarge.status:
        return BodyTooLarge(f"The body is larger than {MAX_BODY} bytes.")
    return UnknownPath("This path is not part of the admin API.")


def _json(document: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), content_type="application/json")


def _written(answer: LocalAnswer) -> web.Response:
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    if answer.status >= 400:
        headers.setdefault("X-Request-Id", f"rr-admin-{secrets.token_hex(4)}")
    return web.Response(status=answer.status, body=answer.body, headers=headers)
