"""Asks the policy of a pool, and leases what it chose."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from replicarouter.admission.common_lease import CommonLease
from replicarouter.admission.decisions import Case, Draft
from replicarouter.admission.desk import Desk, Desks
from replicarouter.admission.holds import Holds
from replicarouter.admission.lease import Lease
from replicarouter.admission.queue import Queue
from replicarouter.admission.shadow import Advice
from replicarouter.clock import Clock
from replicarouter.commons.callers import NOBODY
from replicarouter.commons.layout import ALL_QUEUED
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest
from replicarouter.settings import AdmissionSettings

HELD = 0.5
"""The share of the longest wait in the queue for which a policy may hold a request."""


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Most requests that may wait, for how many seconds (0 for no bound), and the weights of callers
    in their order; who is not named weighs 1."""

    requests: int
    seconds: float
    shares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: AdmissionSettings) -> "QueueRules":
        """The rules that the settings ask for."""
        return cls(settings.max_queued, settings.queue_timeout, settings.shares)

    @property
    def most_held(self) -> float:
        """Seconds for which a policy may hold a request; 0 for no bound. Then there is time enough left in
        which others may have room."""
        return self.seconds * HELD


class Grants:
    """Each one is synchronous, so that counts are never stale. Where there are other workers, the room that a
    policy chose may be gone when it is taken: then it is asked again.

    `rules` may be replaced at any time; `cooling_until` is when no replica is cooling off any more.
    """

    def __init__(
        self, ledger: Ledger, desks: Desks, queue: Queue, holds: Holds, clock: Clock, random: Random
    ) -> None:
        self.rules = QueueRules(0, 0.0)
        self.cooling_until = 0.0
        self._ledger = ledger
        self._seat = ledger.seat
        self._desks = desks
        self._open = desks.open
        self._queue = queue
        self._holds = holds
        self._clock = clock
        self._random = random

    @property
    def queued(self) -> int:
        """How many requests are in the queue, those of other workers included."""
        return len(self._queue.waiters) if self._seat is None else self._seat.header[ALL_QUEUED]

    def lease(
        self,
        request: InferenceRequest,
        pool: Pool,
        exchange: Exchange,
        tried: Sequence[Replica],
        only: Replica | None,
        since: float = 0.0,
    ) -> Lease | Wait | None:
        """Ask the policy and lease what it chose, or say what it wants to wait for; None when nobody has
        room. The request is queued `since` then, 0 for not at all."""
        now = self._clock()
        candidates: Sequence[Replica] = pool.ready
        if tried or pool.bounded or only is not None or now < self.cooling_until:
            candidates = self._candidates(pool, tried, only, now)
        patience = self._patience(tried, only, since, now)
        desk = self._open.get(pool.model) or self._desks.of(pool)
        while candidates:
            view = View(pool.replicas, candidates, now, self._random, patience, self._holds.counts)
            draft, decisions = None, self._desks.decisions
            if now >= decisions.due_at or ((tried or since) and decisions.follows(exchange)):
                draft = Draft(
                    Case(desk.name, desk.policy, desk.shadow, request, exchange, view, tried, only, since)
                )
            granted = self._choose(desk, request, exchange, view, draft)
            if granted is not None:
                return granted
            # Another worker was faster there.
            candidates = [one for one in candidates if one.has_room]
        return None

    def _choose(
        self, desk: Desk, request: InferenceRequest, exchange: Exchange, view: View, draft: Draft | None
    ) -> Lease | Wait | None:
        """Ask the policy of a desk; None when another worker took what it chose."""
        choice = desk.policy.pick(request, view)
        if isinstance(choice, Wait):
            choice = self._heeded(choice, desk.policy, request, view, draft)
            if isinstance(choice, Wait):
                return choice
        advice = None
        if self._seat is None:
            if request.characters or desk.shadow is not None:
                advice = desk.choose(request, choice, view)
            lease = Lease(self._ledger, choice, exchange, desk.book.account(exchange.caller))
        else:
            shared = self._share(desk, request, exchange, choice, view)
            if shared is None:
                return None
            lease, advice = shared
        if draft is not None:
            self._desks.decisions.keep(draft, choice, advice)
        exchange.policy = desk.name
        exchange.affinity = request.affinity
        exchange.leased_at = view.now
        exchange.replica = choice.name
        if self._queue.waiters:
            self._queue.shift(lease.account)
        if desk.learns:
            desk.sent(request, exchange, choice, advice, view.now)
        return lease

    def _share(
        self, desk: Desk, request: InferenceRequest, exchange: Exchange, choice: Replica, view: View
    ) -> tuple[Lease, Advice | None] | None:
        """A lease of room that all workers have in common; None when another one was faster."""
        assert self._seat is not None
        account = desk.book.account(exchange.caller)
        advice = None if desk.shadow is None else desk.advise(request, view)
        most = choice.limit if choice.trial else choice.most
        # Where nobody has to wait for room, nobody asks what a caller holds.
        place = account.place if most else NOBODY
        if not self._seat.lease(choice.row, most, place):
            return None
        desk.choose(request, choice, view, advice)
        return CommonLease(self._seat, choice, exchange, account, place), advice

    def _patience(self, tried: Sequence[Replica], only: Replica | None, since: float, now: float) -> float:
        """For how many seconds a request has waited; infinite where there is no place to hold it or no time
        left. Whoever may use one replica alone cannot wait for another, and whoever was refused somewhere is
        not to be kept from the rest."""
        if tried or only is not None:
            return math.inf
        if not since:
            return 0.0 if self.queued < self.rules.requests else math.inf
        most, waited = self.rules.most_held, now - since
        return math.inf if most and waited >= most else waited

    def _heeded(
        self, wait: Wait, policy: Policy, request: InferenceRequest, view: View, draft: Draft | None
    ) -> Replica | Wait:
        """What becomes of a wish to wait: it is asked again where enough wait for that replica already."""
        if view.waited < math.inf:
            if self._holds.has_place(wait.replica):
                if draft is not None:
                    self._desks.decisions.keep(draft, wait)
                return wait
            view.waited = math.inf
            choice = policy.pick(request, view)
            if not isinstance(choice, Wait):
                return choice
        # Against its contract it insists; room that is there must not be lost.
        return min(view.candidates, key=lambda one: one.cost(view.now))

    def _candidates(
        self, pool: Pool, tried: Sequence[Replica], only: Replica | None, now: float
    ) -> Sequence[Replica]:
        """Who may have a request now: those with room, and of these those that are not cooling off."""
        candidates: Sequence[Replica] = pool.ready if only is None else [only]
        if pool.bounded or tried:
            candidates = [one for one in candidates if one.has_room and one not in tried]
        if now < self.cooling_until:
            return [one for one in candidates if not one.cooling(now)] or candidates
        return candidates
