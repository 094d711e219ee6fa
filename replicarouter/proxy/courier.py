"""Carries an errand to one replica after another, until one has an answer or the last error stands."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from replicarouter.admission.controller import Admission
from replicarouter.admission.lease import Lease
from replicarouter.errors import (
    ConnectFailed,
    Fault,
    InternalError,
    NoReplica,
    QueueFull,
    QueueTimeout,
    RouterError,
    StaleConnection,
    TotalTimeout,
)
from replicarouter.exchange import CLIENT_GONE, OK, UNSETTLED, UPSTREAM_ERROR, Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.headers import request_head
from replicarouter.protocol.refusal import Meaning, Refusal
from replicarouter.protocol.upgrade import UPGRADE_LINES
from replicarouter.proxy.attempt import Attempt, Terms
from replicarouter.proxy.errand import Declined, DeclinedAnswer, Errand
from replicarouter.proxy.receipts import client_head
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.retry import RetryBudget, RetryRules, may_retry
from replicarouter.proxy.upstream import Upstream


class Verdicts(Protocol):
    """Who draws conclusions from how attempts end; `now` is in seconds on the router's clock."""

    def answered(self, replica: Replica) -> None:
        """An answer came that speaks for the replica."""

    def failed(self, replica: Replica, now: float, reason: str, *, leased_at: float | None = None) -> None:
        """An attempt that was leased at `leased_at` failed, and the replica is to blame."""

    def busy(self, replica: Replica, now: float, retry_after: float | None) -> None:
        """The replica has no room; `retry_after` seconds, if it says so."""

    def leaving(self, replica: Replica, now: float) -> None:
        """The replica's engine is shutting down."""


@dataclass(frozen=True, slots=True)
class Roads:
    """What leads to replicas, and whom to tell how it went. `refused` is told of a replica that takes no
    connections, or says that it is loading."""

    ledger: Ledger
    admission: Admission
    upstream: Upstream
    health: Verdicts
    refused: Callable[[Replica], None]


class Courier:
    """Delivers errands. `terms`, `rules` and `budget` may be replaced at any time."""

    def __init__(self, roads: Roads, terms: Terms, rules: RetryRules, budget: RetryBudget) -> None:
        self._roads = roads
        self.terms = terms
        self.rules = rules
        self.budget = budget

    async def deliver(self, errand: Errand) -> None:
        """Attempt after attempt; ends with the client's answer written, or raises the last error. The body is
        let go in any case."""
        self.budget.note_request(errand.exchange.received_at)
        body = errand.body
        try:
            if body.streams:
                body.watch_client()
            while True:
                lease = self._grant(errand) or await self._wait(errand)
                if lease is None:
                    self._pass_on(errand)
                    return
                if await self._try(errand, lease):
                    return
                errand.tried = (*errand.tried, lease.replica)
        finally:
            body.drop()

    def _grant(self, errand: Errand) -> Lease | None:
        """A lease for the next attempt, if there is one at once."""
        if errand.nobody:
            return None
        try:
            return self._roads.admission.grant(
                errand.inference, errand.pool, errand.exchange, errand.tried, errand.only
            )
        except NoReplica as error:
            _note_nobody(errand, error)
            return None

    async def _wait(self, errand: Errand) -> Lease | None:
        """A lease that has to be waited for; None when an engine's refusal is the last word.

        Where a replica has said that it is busy, to wait for the others, which are full, would only hide
        that the fleet is.
        """
        declined = errand.declined
        if errand.nobody or (declined is not None and declined.refusal.meaning is Meaning.BUSY):
            return None
        errand.waited = True
        try:
            return await self._roads.admission.wait(
                errand.inference, errand.pool, errand.exchange, errand.tried, errand.only
            )
        except (NoReplica, QueueFull, QueueTimeout) as error:
            _note_nobody(errand, error)
            return None

    async def _try(self, errand: Errand, lease: Lease) -> bool:
        """One attempt at one replica; True when the client has its answer."""
        roads, exchange, replica = self._roads, errand.exchange, lease.replica
        if errand.tried:
            roads.ledger.retries.add((errand.retry_reason,))
            exchange.sent_at = 0.0
        result = InternalError.code  # unless it ends in one of the ways below
        failed = False
        try:
            exchange.attempts += 1
            upstream = roads.upstream
            link = upstream.take(replica, waited=errand.waited) or await upstream.open(replica, exchange)
            attempt = Attempt(link, lease, errand, self.terms, self._elsewhere)
            try:
                await attempt.run(self._request_head(errand, replica))
            except StaleConnection as stale:
                attempt = await self._carry_again(errand, lease, stale)
            if exchange.status < 400 and exchange.outcome == UNSETTLED:
                result = OK
                roads.health.answered(replica)
            else:
                result, failed = self._judge(errand, attempt.refusal, replica)
            exchange.outcome = result
            return True
        except Declined as declined:
            errand.declined = DeclinedAnswer(
                declined.answer, declined.refusal, replica, exchange.leased_at, exchange.sent_at
            )
            errand.retry_reason = declined.refusal.meaning.value
            # Since it was declined, more of an upload may have come than is kept.
            errand.nobody = not errand.body.replayable
            result = declined.refusal.meaning.value
            failed = self._note_refusal(declined.refusal, replica, exchange.leased_at)
        except RouterError as error:
            result, failed = error.code, error.fault is Fault.REPLICA
            if failed:
                roads.health.failed(replica, self.terms.clock(), error.code, leased_at=exchange.leased_at)
            self._after_failure(error, errand, replica)
        except (asyncio.CancelledError, ClientLeft) as error:
            result = CLIENT_GONE if isinstance(error, ClientLeft) else self._interruption(errand)
            if result == CLIENT_GONE and errand.caller.had_all():
                result, failed = self._judge(errand, None, replica)
                exchange.outcome = result
            raise
        finally:
            roads.ledger.attempts.add((replica.name, result))
            roads.admission.give_back(lease, errand.pool, outcome=result, failed=failed)
        exchange.note_attempt(result, self.terms.clock())
        return False

    async def _carry_again(self, errand: Errand, lease: Lease, stale: StaleConnection) -> Attempt:
        """The pooled connection had gone stale: send once more over a new one."""
        roads, exchange, replica, now = self._roads, errand.exchange, lease.replica, self.terms.clock()
        if not errand.body.claim() or not self.budget.take(now):
            raise stale
        roads.ledger.retries.add(("stale_connection",))
        exchange.note_attempt("stale_connection", now)
        lease.move(Stage.CONNECTING)
        exchange.attempts += 1
        try:
            link = await roads.upstream.open(replica, exchange, fresh=True)
            attempt = Attempt(link, lease, errand, self.terms, self._elsewhere)
            await attempt.run(self._request_head(errand, replica))
        except StaleConnection:
            raise stale from None
        except ConnectFailed:
            # It was no idle connection that ended, but the replica, and it may have begun the request.
            roads.refused(replica)
            raise stale from None
        return attempt

    def _elsewhere(self, errand: Errand, replica: Replica) -> bool:
        """Whether another replica is to have a request that `replica` refused."""
        if len(errand.tried) + 1 >= self.rules.attempts or not errand.body.claim():
            return False
        if errand.only is not None:
            return False
        others = (one for one in errand.pool.ready if one is not replica and one not in errand.tried)
        return next(others, None) is not None and self.budget.take(self.terms.clock())

    def _after_failure(self, error: RouterError, errand: Errand, replica: Replica) -> None:
        """Note a failed attempt; raises the error again when no other attempt may follow."""
        if error.retryable:
            self._roads.refused(replica)
        elif not errand.body.claim():
            raise error
        # With its answer the body was let go, be it that no byte of it reached the client.
        begun = errand.caller.relay is not None or errand.caller.tunnel is not None
        if begun or not may_retry(error, len(errand.tried) + 1, self.rules):
            if not isinstance(error, ConnectFailed):
                raise error
            _note_nobody(errand, error)
            return
        if not error.retryable and not self.budget.take(self.terms.clock()):
            raise error
        errand.failure, errand.retry_reason = error, error.code

    def _note_refusal(self, refusal: Refusal, replica: Replica, leased_at: float) -> bool:
        """Tell of a refusal; True when it speaks against the replica."""
        health, now = self._roads.health, self.terms.clock()
        if refusal.meaning is Meaning.BUSY:
            health.busy(replica, now, refusal.retry_after)
        elif refusal.meaning is Meaning.LEAVING:
            health.leaving(replica, now)
        elif refusal.meaning is Meaning.LOADING:
            self._roads.refused(replica)
        else:
            health.failed(replica, now, "http_503", leased_at=leased_at)
            return True
        return False

    def _judge(self, errand: Errand, refusal: Refusal | None, replica: Replica) -> tuple[str, bool]:
        """How an answered attempt ended, and whether that speaks against the replica."""
        exchange = errand.exchange
        if refusal is not None:
            return UPSTREAM_ERROR, self._note_refusal(refusal, replica, exchange.leased_at)
        status, health, now = exchange.status, self._roads.health, self.terms.clock()
        if exchange.in_band_busy:
            health.busy(replica, now, None)
            return UPSTREAM_ERROR, False
        if exchange.in_band_error or status >= 500:
            reason = "in_band_error" if exchange.in_band_error else f"http_{status}"
            health.failed(replica, now, reason, leased_at=exchange.leased_at)
            return UPSTREAM_ERROR, True
        if exchange.given_up:
            return UPSTREAM_ERROR, False
        if status != 429:
            health.answered(replica)
        return (UPSTREAM_ERROR if status >= 400 else OK), False

    def _interruption(self, errand: Errand) -> str:
        """Why the attempt was stopped: from outside, by its client, or by its total time."""
        if errand.exchange.interrupted is not None:
            return errand.exchange.interrupted.code
        return CLIENT_GONE if errand.caller.connection.transport is None else TotalTimeout.code

    def _pass_on(self, errand: Errand) -> None:
        """Nobody else accepts: the client gets the refusal as the engine wrote it."""
        declined, exchange, caller = errand.declined, errand.exchange, errand.caller
        assert declined is not None
        transport = caller.connection.transport
        if transport is None:
            raise ClientLeft
        answer = declined.answer
        exchange.replica = declined.replica.name
        exchange.leased_at, exchange.sent_at = declined.leased_at, declined.sent_at
        exchange.status = answer.head.status
        exchange.head_at = self.terms.clock()
        exchange.bytes_out += len(answer.data)
        exchange.outcome = UPSTREAM_ERROR
        unread = not errand.body.sent  # the rest of an upload that nobody wants
        if unread or answer.ends_with_connection or (answer.head.chunked and not caller.modern):
            caller.keep_alive = False
        head = client_head(exchange, caller, answer.head, expose_replica=self.terms.expose_replica)
        transport.write(head + (answer.data if caller.modern else answer.content()))

    def _request_head(self, errand: Errand, replica: Replica) -> bytes:
        address, exchange, caller = self._roads.upstream.address(replica), errand.exchange, errand.caller
        request_id, trace = exchange.upstream_id, exchange.trace
        if exchange.attempts > 1:
            request_id = f"{request_id[:120]}-r{exchange.attempts - 1}"
        return request_head(
            errand.heading.start(address.base_path, errand.target),
            address.own_lines,
            trace.line + UPGRADE_LINES if errand.upgrade else trace.line,
            errand.heading.crossing(
                address.replaces_credentials or caller.keys_stop_here, caller.forwards, trace.replaces
            ),
            request_id=request_id,
            body_length=errand.body.length,
        )


def _note_nobody(errand: Errand, error: RouterError) -> None:
    """Nobody else can have the request: a refusal is the last word, or a failure, or this `error`."""
    if errand.declined is not None:
        errand.nobody = True
        return
    if errand.failure is not None and isinstance(error, NoReplica):
        raise errand.failure from None
    raise error
