"""The corridor: the whole path of a request, each room entered once. The only way back is a retry."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from replicarouter.admission.controller import Admission
from replicarouter.admission.owners import Owners
from replicarouter.affinity.reader import KeyReader
from replicarouter.clock import Clock
from replicarouter.errors import Draining, InternalError, MethodNotAllowed, RouterError, TotalTimeout
from replicarouter.exchange import OTHER, Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.protocol.answer import LocalAnswer, error_answer
from replicarouter.protocol.endpoints import Body as BodyKind
from replicarouter.protocol.endpoints import Endpoint, Endpoints, body_kind
from replicarouter.protocol.headers import UNKNOWN
from replicarouter.protocol.request import InferenceRequest, understand
from replicarouter.protocol.response_id import RESPONSES, named_in_path
from replicarouter.protocol.upgrade import check_asked, understand_session
from replicarouter.proxy.aiohttp_internals import ClientConnection, InboundRequest
from replicarouter.proxy.alias import resolve
from replicarouter.proxy.answers import end_broken, write_answer
from replicarouter.proxy.body import Body, arrived_body
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.courier import Courier
from replicarouter.proxy.errand import Errand
from replicarouter.proxy.inbound import Heading
from replicarouter.proxy.intake import Asked, Intake
from replicarouter.proxy.reception import Reception
from replicarouter.proxy.register import NAMING, REQUEST_ID, Register
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.upload import Upload
from replicarouter.words import counted

log = logging.getLogger(__name__)

MESSAGES_API = "/v1/messages"

Later = Callable[[], Awaitable[LocalAnswer]]
"""Fetches an answer that another process has."""

Local = Callable[[str, str], LocalAnswer | Later | None]
"""The router's own answer to a path and a query; None when the path is no own one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take: bytes, seconds (0 for no bound), attempts."""

    body_bytes: int
    body_gap: float
    total: float


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the corridor leads through, and whom it tells."""

    fleet: Fleet
    ledger: Ledger
    admission: Admission
    courier: Courier
    intake: Intake
    endpoints: Endpoints
    local: Local
    reception: Reception
    register: Register
    aliases: dict[str, str]
    owners: Owners


class Corridor:
    """Serves the main port. `draining` makes it answer new requests with 503 and nothing else; `limits`
    and `keys` may be replaced at any time."""

    def __init__(self, rooms: Rooms, limits: Limits, keys: KeyReader, clock: Clock) -> None:
        self._rooms = rooms
        self.limits = limits
        self.keys = keys
        self._clock = clock
        self.draining = False

    async def handle(self, request: InboundRequest) -> bool:
        """Answer one request, however it ends; the exchange is observed exactly once.

        True when the client's connection may serve another request.
        """
        heading, connection, rooms = request.heading, request.client, self._rooms
        caller = Caller(connection, heading.modern, heading.keep_alive)
        caller.name = connection.peer
        endpoint = heading.endpoint(rooms.endpoints)
        if endpoint is None or endpoint.added or not rooms.reception.plain:
            local = self._receive_caller(heading, caller, endpoint)
            if local is not None:
                answer = local if isinstance(local, LocalAnswer) else await local()
                return self._answer_locally(request, caller, answer)
        label = OTHER if endpoint is None else endpoint.label
        message = heading.message
        exchange = rooms.register.open(message.method, heading.path, label, heading.pick(NAMING))
        exchange.caller, exchange.priority = caller.name, caller.priority
        exchange.peer = connection.peer
        caller.task = connection.task
        exchange.on_interrupt = caller.interrupt
        try:
            if self.limits.total:
                await self._within_total(request, caller, exchange, endpoint)
            else:
                await self._serve(request, caller, exchange, endpoint)
            return caller.keep_alive
        except RouterError as error:
            return self._give_up(request, caller, exchange, error)
        except ClientLeft:
            exchange.left()
            return False
        except asyncio.CancelledError:
            stopped = _interruption(caller, exchange)
            if stopped is None:
                raise
            return self._give_up(request, caller, exchange, stopped)
        except Exception:
            log.exception("internal error", extra={"request_id": exchange.client_id})
            fault = InternalError("The router failed on this request; its log has the request id.")
            return self._give_up(request, caller, exchange, fault)
        finally:
            rooms.register.settle(exchange)

    def refuse(self, client: ClientConnection, error: RouterError) -> None:
        """Answer what never became a request: a head that cannot be parsed, or never ended."""
        exchange = self._rooms.register.open("", "", OTHER, None)
        exchange.outcome = error.code
        exchange.status = error.status
        answer = error_answer(error, exchange.client_id)
        exchange.bytes_out = write_answer(client, answer, close=True, bare=False)
        self._rooms.register.settle(exchange)

    def _receive_caller(
        self, heading: Heading, caller: Caller, endpoint: Endpoint | None
    ) -> LocalAnswer | Later | None:
        """Note who asks; the answer if it is the router itself that is asked, None when a replica is."""
        message, rooms = heading.message, self._rooms
        if not rooms.reception.plain:
            caller.refusal = rooms.reception.welcome(message, heading.path, caller)
        local: LocalAnswer | Later | None = rooms.reception.preflight(message)
        if local is None and caller.refusal is None and (endpoint is None or endpoint.added):
            local = rooms.local(heading.path, heading.query)
            if local is not None and message.method not in ("GET", "HEAD"):
                local = error_answer(MethodNotAllowed("Use GET on this path.", allow="GET, HEAD"))
        return local

    def _answer_locally(self, request: InboundRequest, caller: Caller, answer: LocalAnswer) -> bool:
        """Write one of the router's own answers; these are no exchanges and are not counted."""
        message = request.message
        if answer.status >= 400:
            request_id = message.headers.get(REQUEST_ID) or self._rooms.register.make_id()
            answer = replace(answer, headers=(*answer.headers, ("X-Request-Id", request_id)))
        close = not caller.keep_alive or not request.content.is_eof()
        write_answer(caller.connection, answer, close=close, bare=message.method == "HEAD", cors=caller.cors)
        return not close

    async def _within_total(
        self,
        request: InboundRequest,
        caller: Caller,
        exchange: Exchange,
        endpoint: Endpoint | None,
    ) -> None:
        limit = self.limits.total
        try:
            async with asyncio.timeout(limit):
                await self._serve(request, caller, exchange, endpoint)
        except TimeoutError:
            raise TotalTimeout(f"The request took longer than {counted(limit, 'second')}.") from None

    def _serve(
        self,
        request: InboundRequest,
        caller: Caller,
        exchange: Exchange,
        endpoint: Endpoint | None,
    ) -> Awaitable[None]:
        """Receive, understand, find the pool, and try its replicas. No coroutine itself: what came with its
        head, as most requests do, needs to wait for nothing before its replica."""
        if caller.refusal is not None:
            raise caller.refusal
        kind = body_kind(endpoint, request.heading.message.method)
        assert endpoint is not None
        if self.draining:
            # Nor is there to be another one on this connection.
            caller.keep_alive = False
            raise Draining("The router is shutting down; send the request again.")
        rooms = self._rooms
        body = arrived_body(request, most=self.limits.body_bytes, memory=rooms.intake.memory)
        encoded = request.heading.encoded
        must_read = len(rooms.fleet.pools) > 1 or bool(rooms.aliases and not endpoint.added)
        if body is None and kind is not BodyKind.SESSION:
            wants_keys = rooms.admission.wants_keys
            asked = Asked(
                endpoint,
                kind,
                encoded=encoded,
                must_read=must_read,
                wants_keys=wants_keys,
                may_pass=partial(self._may_pass, request.heading, endpoint),
            )
            return self._receive(request, asked, caller, exchange)
        if body is None:
            body = Body(b"", UNKNOWN)
        try:
            if kind is BodyKind.SESSION:
                inference = _understand_session(request, caller, endpoint, body)
            else:
                exchange.bytes_in = len(body.data)
                inference = understand(endpoint, kind, body.data, encoded=encoded, must_read=must_read)
            if rooms.owners.sharing and rooms.owners.may_hear_of(_builds_upon(inference, exchange)):
                return self._ask_around(request.heading, inference, kind, body, caller, exchange)
            errand = self._prepare(request.heading, inference, kind, body, caller, exchange)
        except BaseException:
            body.drop()
            raise
        return rooms.courier.deliver(errand)

    async def _receive(
        self, request: InboundRequest, asked: Asked, caller: Caller, exchange: Exchange
    ) -> None:
        """Wait for the body, or for as much of it as is needed, and go on as with any other."""
        rooms, limits = self._rooms, self.limits
        rooms.ledger.receiving += 1
        try:
            body, inference = await rooms.intake.receive(
                request, asked, exchange, most=limits.body_bytes, gap=limits.body_gap
            )
        finally:
            rooms.ledger.receiving -= 1
        await self._ask_around(request.heading, inference, asked.kind, body, caller, exchange)

    async def _ask_around(
        self,
        heading: Heading,
        inference: InferenceRequest,
        kind: BodyKind,
        body: Body | Upload,
        caller: Caller,
        exchange: Exchange,
    ) -> None:
        """Go on once another worker has told of the response that it builds upon, if one may."""
        owners = self._rooms.owners
        try:
            response_id = _builds_upon(inference, exchange)
            if response_id is not None and owners.may_hear_of(response_id):
                await owners.hear_of(response_id, self._rooms.fleet)
            errand = self._prepare(heading, inference, kind, body, caller, exchange)
        except BaseException:
            body.drop()
            raise
        await self._rooms.courier.deliver(errand)

    def _may_pass(self, heading: Heading, endpoint: Endpoint, model: str | None) -> bool:
        """Whether a large body can go on while it arrives: only one pool may get it, and no key is read in
        it. `model` is what its beginning names, if it does."""
        rooms, pools = self._rooms, self._rooms.fleet.pools
        if endpoint.label.startswith(RESPONSES) or len(pools) != 1 or (rooms.aliases and not endpoint.added):
            return False
        if model is not None and model not in pools:
            return False
        (pool,) = pools.values()
        if heading.encoded:
            return True
        return not self.keys.looks_inside(heading.message.headers, rooms.admission.needs(pool))

    def _prepare(
        self,
        heading: Heading,
        inference: InferenceRequest,
        kind: BodyKind,
        body: Body | Upload,
        caller: Caller,
        exchange: Exchange,
    ) -> Errand:
        """Find the pool of a request that was received, and its keys."""
        rooms = self._rooms
        exchange.received_at = self._clock()
        if inference.model is not None:
            exchange.model, exchange.asked_model = OTHER, inference.model
        target = ""
        if rooms.aliases:
            target = resolve(rooms.aliases, inference, kind, body, heading.message.path)
        if inference.endpoint.label.startswith(RESPONSES):
            errand = self._follow_up(inference, heading, body, caller, exchange)
        else:
            pool = rooms.fleet.pool_for(inference.model)
            errand = Errand(inference, pool, heading, body, caller, exchange)
        exchange.model = errand.pool.model
        if target:
            errand.target = target
        if kind is BodyKind.SESSION:
            errand.upgrade = True
        # Its tree of objects must not be held while the answer streams.
        self.keys.read(inference, heading.message.headers, rooms.admission.needs(errand.pool))
        return errand

    def _follow_up(
        self,
        inference: InferenceRequest,
        heading: Heading,
        body: Body | Upload,
        caller: Caller,
        exchange: Exchange,
    ) -> Errand:
        """An errand of the Responses API: where it builds upon a stored response only its owner will do."""
        fleet, owners = self._rooms.fleet, self._rooms.owners
        response_id = _builds_upon(inference, exchange)
        if response_id is None:
            pool, owner = fleet.pool_for(inference.model), None
        else:
            pool, owner = owners.destination(fleet, response_id, inference.model)
        errand = Errand(inference, pool, heading, body, caller, exchange)
        errand.only = owner
        errand.learn = owners.learn if exchange.endpoint == RESPONSES else None
        return errand

    def _give_up(
        self, request: InboundRequest, caller: Caller, exchange: Exchange, error: RouterError
    ) -> bool:
        """Answer with an error; once an answer is on its way, end it so that nobody takes it for whole."""
        exchange.outcome = error.code
        if caller.tunnel is not None or caller.answered:
            return False
        if caller.relay is not None and caller.committed:
            exchange.bytes_out += end_broken(
                caller.connection,
                caller.relay,
                error,
                messages_api=exchange.endpoint == MESSAGES_API,
            )
            return False
        exchange.status = error.status
        close = error.closes or not caller.keep_alive or not request.content.is_eof()
        answer = error_answer(error, exchange.client_id)
        bare = request.message.method == "HEAD"
        exchange.bytes_out = write_answer(caller.connection, answer, close=close, bare=bare, cors=caller.cors)
        return not close


def _interruption(caller: Caller, exchange: Exchange) -> RouterError | None:
    """Why a request was stopped from outside; None when its client has left."""
    stopped = exchange.interrupted
    if stopped is None or caller.connection.transport is None or caller.task is None:
        exchange.left()
        return None
    caller.task.uncancel()
    return stopped


def _understand_session(
    request: InboundRequest, caller: Caller, endpoint: Endpoint, body: Body
) -> InferenceRequest:
    """What a request for a WebSocket session asks for."""
    message = request.message
    check_asked(message.headers, upgrade=message.upgrade, modern=request.modern)
    # Whatever the answer: the client may speak another protocol behind its request.
    caller.keep_alive = False
    return understand_session(endpoint, request.heading.query, body_length=body.length)


def _builds_upon(inference: InferenceRequest, exchange: Exchange) -> str | None:
    """The stored response that a request of the Responses API needs."""
    if not inference.endpoint.label.startswith(RESPONSES):
        return None
    return inference.response_id or named_in_path(exchange.path)
