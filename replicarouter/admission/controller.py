"""Grants leases: asks the pool's policy among the candidates, and tells it how things ended."""

from collections.abc import Callable, Sequence
from random import Random

from replicarouter.admission.lease import Lease
from replicarouter.clock import Clock
from replicarouter.errors import NoReplica
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest


class Admission:
    """One policy object for each pool; every grant is synchronous, so that counts are never stale."""

    def __init__(
        self,
        ledger: Ledger,
        make_policy: Callable[[], Policy],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._ledger = ledger
        self._make_policy = make_policy
        self._clock = clock
        self._random = random
        self._policies: dict[str, Policy] = {}

    def grant(
        self,
        request: InferenceRequest,
        pool: Pool,
        exchange: Exchange,
        tried: Sequence[Replica],
    ) -> Lease:
        """Lease a replica that was not tried yet; raises `NoReplica` when none is ready."""
        candidates: Sequence[Replica] = pool.ready
        if tried:
            candidates = [replica for replica in candidates if replica not in tried]
        if not candidates:
            raise NoReplica(_why_none(pool, tried))
        now = self._clock()
        view = View(pool.replicas, candidates, now, self._random)
        policy = self._policy(pool)
        choice = policy.pick(request, view)
        # Replicas have no limit of their own yet, so one that is worth waiting for has room now.
        replica = choice.replica if isinstance(choice, Wait) else choice
        exchange.leased_at = now
        exchange.replica = replica.settings.name
        lease = Lease(self._ledger, replica, exchange)
        policy.sent(request, replica)
        return lease

    def give_back(
        self, lease: Lease, request: InferenceRequest, pool: Pool, *, outcome: str, failed: bool
    ) -> None:
        """End a lease with the outcome of its attempt; `failed` holds it against the replica."""
        lease.end()
        if failed:
            lease.replica.failed(self._clock())
        self._policy(pool).finished(request, lease.replica, outcome)

    def _policy(self, pool: Pool) -> Policy:
        policy = self._policies.get(pool.model)
        if policy is None:
            policy = self._policies[pool.model] = self._make_policy()
        return policy


def _why_none(pool: Pool, tried: Sequence[Replica]) -> str:
    if tried:
        return "No other replica is ready to take this request; try again shortly."
    return f"None of the {len(pool.replicas)} replicas of this model is ready; try again shortly."
