"""Grants leases: at once when a candidate has room, else to the oldest waiter when room comes free."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from replicarouter.admission.lease import Lease
from replicarouter.admission.queue import Queue, Waiter
from replicarouter.clock import Clock
from replicarouter.errors import NoReplica, QueueFull, QueueTimeout
from replicarouter.exchange import CLIENT_GONE, Exchange, Stage
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Most requests that may wait, and for how many seconds (0 for no bound)."""

    requests: int
    seconds: float


class Admission:
    """One policy object for each pool; every grant is synchronous, so that counts are never stale."""

    def __init__(
        self,
        ledger: Ledger,
        make_policy: Callable[[], Policy],
        *,
        limits: QueueLimits,
        clock: Clock,
        random: Random,
    ) -> None:
        self._ledger = ledger
        self._make_policy = make_policy
        self._limits = limits
        self._clock = clock
        self._random = random
        self._policies: dict[str, Policy] = {}
        self._queue = Queue()
        self._serial = itertools.count()

    def grant(
        self, request: InferenceRequest, pool: Pool, exchange: Exchange, tried: Sequence[Replica]
    ) -> Lease | None:
        """Lease a replica that was not tried yet; None when the request must `wait` for room.

        Raises `NoReplica` when none is ready.
        """
        if not pool.ready or (tried and all(replica in tried for replica in pool.ready)):
            raise NoReplica(_why_none(pool, tried))
        if self._queue.waiting_for(pool):
            return None
        return self._lease(request, pool, exchange, tried)

    async def wait(
        self, request: InferenceRequest, pool: Pool, exchange: Exchange, tried: Sequence[Replica]
    ) -> Lease:
        """Queue until a replica has room; raises `QueueFull` and `QueueTimeout`."""
        limits = self._limits
        if len(self._queue) >= limits.requests:
            raise QueueFull(
                f"{len(self._queue)} requests are waiting already (setting admission.max_queued); "
                "try again shortly."
            )
        granted: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        waiter = Waiter(next(self._serial), request, pool, exchange, tried, granted)
        self._enter(waiter)
        for replica in pool.ready:
            self.room_at(replica)
        try:
            async with asyncio.timeout(limits.seconds or None):
                return await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                # Granted, but this request had already given up: the room must not be lost.
                self.give_back(granted.result(), request, pool, outcome=CLIENT_GONE, failed=False)
            if isinstance(error, TimeoutError):
                raise QueueTimeout(
                    f"No replica had room within {limits.seconds:g} seconds; try again later."
                ) from None
            raise
        finally:
            self._leave(waiter)

    def give_back(
        self, lease: Lease, request: InferenceRequest, pool: Pool, *, outcome: str, failed: bool
    ) -> None:
        """End a lease with the outcome of its attempt; `failed` holds it against the replica."""
        replica = lease.replica
        lease.end()
        if failed:
            replica.failed(self._clock())
        self._policy(pool).finished(request, replica, outcome)
        self.room_at(replica)

    def room_at(self, replica: Replica) -> None:
        """Hand the room that `replica` has to the oldest requests waiting for one of its pools."""
        while len(self._queue) and replica.has_room and self._grant_oldest(replica):
            pass

    def _grant_oldest(self, replica: Replica) -> bool:
        """Grant the oldest waiter that `replica` can serve; False when there is none."""
        models = [card["id"] for card in replica.cards or ()]
        for waiter in self._queue.oldest_first(models):
            if not waiter.may_use(replica):
                continue
            lease = self._lease(waiter.request, waiter.pool, waiter.exchange, waiter.tried)
            if lease is not None:
                break
        else:
            return False
        self._leave(waiter)
        waiter.granted.set_result(lease)
        return True

    def _lease(
        self, request: InferenceRequest, pool: Pool, exchange: Exchange, tried: Sequence[Replica]
    ) -> Lease | None:
        """Ask the policy and lease what it chose; None when nobody has room or it says to wait."""
        candidates: Sequence[Replica] = pool.ready
        if pool.bounded or tried:
            candidates = [one for one in candidates if one.has_room and one not in tried]
            if not candidates:
                return None
        now = self._clock()
        policy = self._policy(pool)
        choice = policy.pick(request, View(pool.replicas, candidates, now, self._random))
        if isinstance(choice, Wait):
            return None
        exchange.leased_at = now
        exchange.replica = choice.name
        lease = Lease(self._ledger, choice, exchange)
        policy.sent(request, choice)
        return lease

    def _enter(self, waiter: Waiter) -> None:
        ledger, model = self._ledger, waiter.pool.model
        self._queue.add(waiter)
        waiter.exchange.stage = Stage.QUEUED
        ledger.queued[model] = ledger.queued.get(model, 0) + 1
        ledger.hold(waiter.exchange, self._clock())

    def _leave(self, waiter: Waiter) -> None:
        if self._queue.remove(waiter):
            self._ledger.queued[waiter.pool.model] -= 1
            self._ledger.let_go(waiter.exchange)

    def _policy(self, pool: Pool) -> Policy:
        policy = self._policies.get(pool.model)
        if policy is None:
            policy = self._policies[pool.model] = self._make_policy()
        return policy


def _why_none(pool: Pool, tried: Sequence[Replica]) -> str:
    if tried:
        return "No other replica is ready to take this request; try again shortly."
    return f"None of the {len(pool.replicas)} replicas of this model is ready; try again shortly."
