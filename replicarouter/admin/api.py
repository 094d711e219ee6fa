"""The operator's door: a small HTTP API on a port of its own, for people and `replicarouter replicas`."""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from replicarouter.admin.answers import OwnAnswers
from replicarouter.errors import InternalError, InvalidApiKey, MethodNotAllowed, RouterError, UnknownPath
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.settings import AdminSettings
from replicarouter.telemetry.collector import Sources
from replicarouter.telemetry.report import ledger_report, replica_report, request_report

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = frozenset(("/health", "/ready"))
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class AdminApi:
    """Read-only views of the ledger, the replicas and the requests in flight."""

    def __init__(self, settings: AdminSettings, sources: Sources, answers: OwnAnswers) -> None:
        self._token = settings.token.get_secret_value() if settings.token else None
        self._hosts = LOOPBACK_NAMES | {settings.host}
        self._sources = sources
        self._answers = answers

    def application(self) -> web.Application:
        """The aiohttp application to serve."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get("/admin/ledger", self._ledger)
        application.router.add_get("/admin/replicas", self._replicas)
        application.router.add_get("/admin/requests", self._requests)
        for path in ("/metrics", "/health", "/ready", "/version"):
            application.router.add_get(path, self._own)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may come in, and turn every failure into error JSON."""
        refusal = None if request.path in OPEN_PATHS else self._refusal(request)
        if refusal is not None:
            return _written(error_answer(refusal))
        try:
            return await handler(request)
        except web.HTTPException as error:
            allow = error.headers.get("Allow")
            if allow is not None:
                return _written(error_answer(MethodNotAllowed(f"Use {allow} here.", allow=allow)))
            return _written(error_answer(UnknownPath("This path is not part of the admin API.")))
        except Exception:
            log.exception("admin request failed", extra={"path": request.path})
            return _written(error_answer(InternalError("The router failed on this request.")))

    def _refusal(self, request: web.Request) -> RouterError | None:
        if self._token is not None:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() == "bearer" and hmac.compare_digest(_bytes(given), _bytes(self._token)):
                return None
            return InvalidApiKey("Send the admin token: Authorization: Bearer TOKEN.")
        # Without a token only loopback can reach this port; a web page in a local browser must not.
        origin = request.headers.get("Origin")
        names = [request.headers.get("Host", "")]
        if origin is not None:
            names.append(origin.partition("://")[2])
        if all(_host_of(name) in self._hosts for name in names):
            return None
        return InvalidApiKey("Without an admin token this port answers only to loopback names.")

    async def _ledger(self, _request: web.Request) -> web.StreamResponse:
        return _json(ledger_report(self._sources))

    async def _replicas(self, _request: web.Request) -> web.StreamResponse:
        now = self._sources.clock()
        rows = [replica_report(replica, self._sources, now) for replica in self._sources.fleet]
        return _json({"replicas": rows})

    async def _requests(self, _request: web.Request) -> web.StreamResponse:
        now = self._sources.clock()
        rows = [request_report(exchange, now) for exchange in self._sources.ledger.oldest_first()]
        return _json({"requests": rows})

    async def _own(self, request: web.Request) -> web.StreamResponse:
        answer = self._answers.find(request.path, request.query_string)
        if answer is None:
            return _written(error_answer(UnknownPath("This path is not part of the admin API.")))
        return _written(answer)


def _json(document: object) -> web.Response:
    return web.Response(body=orjson.dumps(document), content_type="application/json")


def _written(answer: LocalAnswer) -> web.Response:
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    if answer.status >= 400:
        headers.setdefault("X-Request-Id", f"rr-admin-{secrets.token_hex(4)}")
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _host_of(netloc: str) -> str:
    """The host of a `Host` field, without port and brackets; empty when it is none."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
