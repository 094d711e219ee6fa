"""The corridor: the whole path of a request, each room entered once. The only way back is a retry."""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiohttp import hdrs
from aiohttp.http_parser import RawRequestMessage
from multidict import istr

from replicarouter.admission.controller import Admission
from replicarouter.errors import (
    Draining,
    Fault,
    InternalError,
    MethodNotAllowed,
    NoReplica,
    RouterError,
    TotalTimeout,
)
from replicarouter.exchange import CLIENT_GONE, OK, OTHER, UPSTREAM_ERROR, Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.protocol.endpoints import Endpoint, Endpoints, body_kind
from replicarouter.protocol.headers import (
    crossing_fields,
    request_head,
    usable_request_id,
)
from replicarouter.protocol.request import InferenceRequest, understand
from replicarouter.proxy.aiohttp_internals import ClientConnection, InboundRequest
from replicarouter.proxy.answers import end_broken, write_answer
from replicarouter.proxy.attempt import Attempt, Terms
from replicarouter.proxy.body import Body, arrived_body, receive_body
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.retry import may_retry
from replicarouter.proxy.upstream import Upstream

log = logging.getLogger(__name__)

BUSY = 503
REQUEST_ID = istr("X-Request-Id")
MESSAGES_API = "/v1/messages"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take: bytes, seconds (0 for no bound), attempts."""

    body_bytes: int
    body_gap: float
    total: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the corridor leads through, and whom it tells."""

    fleet: Fleet
    ledger: Ledger
    admission: Admission
    upstream: Upstream
    endpoints: Endpoints
    local: Callable[[str, str], LocalAnswer | None]
    observe: Callable[[Exchange], None]
    refused: Callable[[Replica], None]


@dataclass(slots=True, eq=False)
class Errand:
    """One request, ready to go to any replica of its pool."""

    inference: InferenceRequest
    pool: Pool
    message: RawRequestMessage
    body: Body


class Corridor:
    """Serves the main port. `draining` makes it answer new requests with 503 and nothing else."""

    def __init__(self, rooms: Rooms, terms: Terms, limits: Limits) -> None:
        self._rooms = rooms
        self._terms = terms
        self._limits = limits
        self._clock = terms.clock
        self._id_prefix = f"rr-{secrets.token_hex(4)}-"
        self._serial = itertools.count(1)
        self.draining = False

    async def handle(self, request: InboundRequest) -> bool:
        """Answer one request, however it ends; the exchange is observed exactly once.

        True when the client's connection may serve another request.
        """
        message = request.message
        path, _, query = message.path.partition("?")
        caller = Caller(request.client, request.modern, request.modern and not message.should_close)
        endpoint = self._rooms.endpoints.find(path)
        if endpoint is None or endpoint.added:
            local = self._rooms.local(path, query)
            if local is not None:
                return self._answer_locally(request, caller, local)
        exchange = self._accept(request, path, endpoint)
        try:
            if self._limits.total:
                await self._within_total(request, caller, exchange, endpoint)
            else:
                await self._serve(request, caller, exchange, endpoint)
            return caller.keep_alive
        except RouterError as error:
            return self._give_up(request, caller, exchange, error)
        except ClientLeft:
            exchange.outcome = CLIENT_GONE
            return False
        except asyncio.CancelledError:
            exchange.outcome = CLIENT_GONE
            raise
        except Exception:
            log.exception("internal error", extra={"request_id": exchange.client_id})
            fault = InternalError("The router failed on this request; its log has the request id.")
            return self._give_up(request, caller, exchange, fault)
        finally:
            self._settle(exchange)

    def refuse(self, client: ClientConnection, error: RouterError) -> None:
        """Answer what never became a request: a head that cannot be parsed, or never ended."""
        nameless = Exchange(method="", path="", endpoint=OTHER, accepted_at=self._clock())
        exchange = self._register(nameless, None)
        exchange.outcome = error.code
        exchange.status = error.status
        answer = error_answer(error, exchange.client_id)
        write_answer(client, answer, close=True, bare=False)
        self._settle(exchange)

    def _answer_locally(self, request: InboundRequest, caller: Caller, answer: LocalAnswer) -> bool:
        """Write one of the router's own answers; these are no exchanges and are not counted."""
        message = request.message
        if message.method not in ("GET", "HEAD"):
            answer = error_answer(MethodNotAllowed("Use GET on this path.", allow="GET, HEAD"))
        if answer.status >= 400:
            request_id = message.headers.get(REQUEST_ID) or self._make_id()
            answer = replace(answer, headers=(*answer.headers, ("X-Request-Id", request_id)))
        close = not caller.keep_alive or not request.content.is_eof()
        write_answer(caller.connection, answer, close=close, bare=message.method == "HEAD")
        return not close

    def _make_id(self) -> str:
        return f"{self._id_prefix}{next(self._serial):x}"

    def _accept(self, request: InboundRequest, path: str, endpoint: Endpoint | None) -> Exchange:
        message = request.message
        label = OTHER if endpoint is None else endpoint.label
        exchange = Exchange(method=message.method, path=path, endpoint=label, accepted_at=self._clock())
        return self._register(exchange, message.headers.get(REQUEST_ID))

    def _register(self, exchange: Exchange, given_id: str | None) -> Exchange:
        """Name the exchange, count it and keep it in flight."""
        ledger = self._rooms.ledger
        made = self._make_id()
        upstream_id = usable_request_id(given_id) or made
        while upstream_id in ledger.in_flight:
            upstream_id = f"{upstream_id[:100]}-{next(self._serial):x}"
        exchange.client_id = given_id or made
        exchange.upstream_id = upstream_id
        ledger.in_flight[upstream_id] = exchange
        return exchange

    async def _within_total(
        self,
        request: InboundRequest,
        caller: Caller,
        exchange: Exchange,
        endpoint: Endpoint | None,
    ) -> None:
        limit = self._limits.total
        try:
            async with asyncio.timeout(limit):
                await self._serve(request, caller, exchange, endpoint)
        except TimeoutError:
            raise TotalTimeout(f"The request took longer than {limit:g} seconds.") from None

    async def _serve(
        self,
        request: InboundRequest,
        caller: Caller,
        exchange: Exchange,
        endpoint: Endpoint | None,
    ) -> None:
        """Receive, understand, find the pool, and try its replicas."""
        message = request.message
        kind = body_kind(endpoint, message.method)
        assert endpoint is not None
        if self.draining:
            caller.keep_alive = False
            raise Draining("The router is shutting down; send the request again.")
        body = arrived_body(request, most=self._limits.body_bytes)
        if body is None:
            body = await self._receive(request)
        exchange.received_at = self._clock()
        exchange.bytes_in = len(body.data)
        inference = understand(
            endpoint,
            kind,
            body.data,
            encoded=message.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity",
            must_read=len(self._rooms.fleet.pools) > 1,
        )
        if inference.model is not None:
            exchange.model = OTHER
        pool = self._rooms.fleet.pool_for(inference.model)
        exchange.model = pool.model
        errand = Errand(inference, pool, message, body)
        await self._try_replicas(errand, caller, exchange)

    async def _receive(self, request: InboundRequest) -> Body:
        ledger, limits = self._rooms.ledger, self._limits
        ledger.receiving += 1
        try:
            return await receive_body(request, most=limits.body_bytes, gap=limits.body_gap)
        finally:
            ledger.receiving -= 1

    async def _try_replicas(self, errand: Errand, caller: Caller, exchange: Exchange) -> None:
        """Attempt after attempt until one has an answer, or the last error stands."""
        admission = self._rooms.admission
        tried: list[Replica] = []
        failure: RouterError | None = None
        while True:
            try:
                lease = admission.grant(errand.inference, errand.pool, exchange, tried)
                if lease is None:
                    lease = await admission.wait(errand.inference, errand.pool, exchange, tried)
            except NoReplica:
                if failure is not None:
                    raise failure from None
                raise
            exchange.attempts += 1
            if failure is not None:
                self._rooms.ledger.retries.add((failure.code,))
            result = InternalError.code  # unless it ends in one of the ways below
            failed = False
            try:
                head = self._request_head(errand, exchange, lease.replica)
                link = await self._rooms.upstream.open(lease.replica, exchange)
                attempt = Attempt(link, lease, caller, exchange, self._terms)
                await attempt.run(head, errand.body)
                result, failed = _verdict(exchange)
                exchange.outcome = result
                return
            except RouterError as error:
                result, failed = error.code, error.fault is Fault.REPLICA
                failure = self._after_failure(error, caller, exchange, lease.replica)
            except (asyncio.CancelledError, ClientLeft):
                # Cancelled either because the client has left, or because the total time is over.
                gone = caller.connection.transport is None
                result = CLIENT_GONE if gone else TotalTimeout.code
                raise
            finally:
                self._rooms.ledger.attempts.add((lease.replica.name, result))
                admission.give_back(lease, errand.inference, errand.pool, outcome=result, failed=failed)
            tried.append(lease.replica)

    def _after_failure(
        self, error: RouterError, caller: Caller, exchange: Exchange, replica: Replica
    ) -> RouterError:
        """Note a failed attempt; raises the error again when no other attempt may follow."""
        if error.retryable:
            self._rooms.refused(replica)
        if caller.committed or not may_retry(error, exchange.attempts, most=self._limits.attempts):
            raise error
        return error

    def _request_head(self, errand: Errand, exchange: Exchange, replica: Replica) -> bytes:
        address = self._rooms.upstream.address(replica)
        message = errand.message
        start = f"{message.method} {address.base_path}{message.path} HTTP/1.1\r\n"
        request_id = exchange.upstream_id
        if exchange.attempts > 1:
            request_id = f"{request_id[:120]}-r{exchange.attempts - 1}"
        return request_head(
            start.encode("utf-8", "surrogateescape") + address.own_lines,
            crossing_fields(
                message.raw_headers,
                message.headers.getall(hdrs.CONNECTION, ()),
                replace_credentials=address.replaces_credentials,
            ),
            request_id=request_id,
            body_length=errand.body.length,
        )

    def _give_up(
        self, request: InboundRequest, caller: Caller, exchange: Exchange, error: RouterError
    ) -> bool:
        """Answer with an error; once an answer is on its way, end it so that nobody takes it for whole."""
        exchange.outcome = error.code
        if caller.relay is not None and caller.committed:
            end_broken(
                caller.connection,
                caller.relay,
                error,
                messages_api=exchange.endpoint == MESSAGES_API,
            )
            return False
        exchange.status = error.status
        close = error.closes or not caller.keep_alive or not request.content.is_eof()
        answer = error_answer(error, exchange.client_id)
        write_answer(caller.connection, answer, close=close, bare=request.message.method == "HEAD")
        return not close

    def _settle(self, exchange: Exchange) -> None:
        ledger = self._rooms.ledger
        exchange.ended_at = self._clock()
        del ledger.in_flight[exchange.upstream_id]
        if exchange.outcome == CLIENT_GONE:
            ledger.client_gone.add((exchange.stage.label,))
        ledger.finished.add((exchange.endpoint, exchange.model, exchange.replica, exchange.outcome))
        self._rooms.observe(exchange)


def _verdict(exchange: Exchange) -> tuple[str, bool]:
    """How an answered attempt ended, and whether that speaks against the replica."""
    if exchange.in_band_error:
        return UPSTREAM_ERROR, True
    if exchange.status >= 400:
        return UPSTREAM_ERROR, exchange.status >= 500 and exchange.status != BUSY
    return OK, False
