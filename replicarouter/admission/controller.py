"""Grants leases: at once when a candidate has room, else when room comes free, to the next in the queue."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from random import Random

from replicarouter.admission.bell import Poll
from replicarouter.admission.common_fairness import CommonBook
from replicarouter.admission.desk import Desks
from replicarouter.admission.grants import Grants, QueueRules
from replicarouter.admission.holds import LONGEST, Holds
from replicarouter.admission.lease import Lease
from replicarouter.admission.owners import OWNER_GONE
from replicarouter.admission.plan import PolicyPlan
from replicarouter.admission.queue import Queue, Waiter
from replicarouter.admission.turns import Turns
from replicarouter.clock import Clock
from replicarouter.commons.layout import ALL_QUEUED
from replicarouter.errors import NoReplica, QueueFull, QueueTimeout, ResponseNotFound, RouterError
from replicarouter.exchange import CLIENT_GONE, Exchange, Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.registry import FleetListener, Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Wait
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.words import counted


class Admission(FleetListener):
    """One desk for each pool; every grant is synchronous, so that counts are never stale.

    `idle` is told of each replica whose last outstanding request has ended. Where the ledger is that of one
    of several workers, their queues are served as if they were one; then a `Bell` must call `look_again`.
    """

    def __init__(
        self,
        ledger: Ledger,
        desks: Desks,
        *,
        rules: QueueRules,
        clock: Clock,
        random: Random,
        idle: Callable[[Replica], None],
    ) -> None:
        self._ledger = ledger
        self._desks = desks
        self._rules = rules
        self._clock = clock
        self._idle = idle
        self._queue = Queue()
        self._holds = Holds(self._ask_again, ledger.seat)
        self._grants = Grants(ledger, desks, self._queue, self._holds, clock, random)
        self._grants.rules = rules
        self._lease = self._grants.lease
        self._to_hold: tuple[Exchange, Wait] | None = None
        self._serial = itertools.count()
        self._turns: Turns | None = None
        self._header: memoryview[int] | None = None
        self._poll = Poll(self)
        seat = ledger.seat
        if seat is not None:
            self._header = seat.header
            self._turns = Turns(seat, self._queue, clock)
            desks.open_book = lambda shares, name: CommonBook(shares, seat, name)
        desks.reweigh(rules.shares)

    @property
    def wants_keys(self) -> bool:
        """Whether some policy has to know more of requests than their endpoints and models."""
        return self._desks.plan.wants_keys

    def needs(self, pool: Pool) -> Needs:
        """What has to be known of a request for this pool."""
        desk = self._desks.open.get(pool.model) or self._desks.of(pool)
        return desk.needs

    def grant(
        self,
        request: InferenceRequest,
        pool: Pool,
        exchange: Exchange,
        tried: Sequence[Replica],
        only: Replica | None = None,
    ) -> Lease | None:
        """Lease a replica that was not tried yet; None when the request must `wait` for room.

        `only` this replica will do, if it is given. Raises `NoReplica` when none is ready.
        """
        if not pool.ready or (tried and all(replica in tried for replica in pool.ready)):
            raise NoReplica(_why_none(pool, tried))
        if only is not None and (only not in pool.ready or only in tried):
            raise NoReplica("The replica that holds this response is not ready; try again shortly.")
        if (self._queue.waiters or self._header is not None) and self._somebody_waits(pool):
            return None
        lease = self._lease(request, pool, exchange, tried, only)
        if not isinstance(lease, Wait):
            return lease
        # Its caller will `wait` at once: until then nothing happens for which to ask the policy again.
        self._to_hold = exchange, lease
        return None

    def _somebody_waits(self, pool: Pool) -> bool:
        """Whether a newcomer would overtake somebody, be it at another worker."""
        if self._queue.waiters and self._queue.waiting_for(pool):
            return True
        return self._header is not None and self._header[ALL_QUEUED] > 0 and self._others_wait(pool)

    async def wait(
        self,
        request: InferenceRequest,
        pool: Pool,
        exchange: Exchange,
        tried: Sequence[Replica],
        only: Replica | None = None,
    ) -> Lease:
        """Queue until a replica has room; raises `QueueFull`, `QueueTimeout`, and `ResponseNotFound` when
        the `only` one has left.

        When the pool loses its last ready replica, those who wait go on waiting for one.
        """
        granted: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        account = self._desks.of(pool).book.account(exchange.caller)
        waiter = Waiter(next(self._serial), request, pool, exchange, tried, granted, account, only)
        seconds = self._rules.seconds
        to_hold, self._to_hold = self._to_hold, None
        self._enter(waiter)
        try:
            if to_hold is not None and to_hold[0] is exchange:
                self._hold(waiter, to_hold[1])
                self._queue.move(waiter, to_hold[1].replica)
            else:
                self._offer_rooms((pool,))
            async with asyncio.timeout(seconds or None):
                return await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                # Granted, but this request had already given up: the room must not be lost.
                self.give_back(granted.result(), pool, outcome=CLIENT_GONE, failed=False)
            if isinstance(error, TimeoutError):
                raise QueueTimeout(
                    f"No replica had room within {counted(seconds, 'second')}; try again later."
                ) from None
            raise
        finally:
            self._leave(waiter)
            if self._turns is not None:
                self._turns.tell()

    def first_content(self, exchange: Exchange) -> None:
        """The first content of an answer came: policies learn from it how long prompts take."""
        desk = self._desks.find(exchange.model)
        if desk is not None and desk.learns:
            desk.began(exchange, exchange.first_content_at)

    def give_back(self, lease: Lease, pool: Pool, *, outcome: str, failed: bool) -> None:
        """End a lease with the outcome of its attempt; `failed` holds it against the replica."""
        replica, last_byte_at = lease.replica, lease.exchange.last_word_at
        lease.end()
        if last_byte_at > replica.heard_at:  # noqa: PLR1730 - a call costs more than the comparison
            replica.heard_at = last_byte_at
        if replica.cool_until > self._grants.cooling_until:  # noqa: PLR1730 - the same
            self._grants.cooling_until = replica.cool_until
        if failed:
            replica.failed(self._clock())
        desk = self._desks.open.get(pool.model) or self._desks.of(pool)
        if desk.learns:
            desk.finished(lease.exchange, outcome, self._clock())
        if self._queue.waiters:
            self._queue.shift(lease.account)
            self.room_at(replica)
        elif self._header is not None and self._header[ALL_QUEUED]:
            self.room_at(replica)
        if not replica.cells[replica.row + OUTSTANDING]:
            self._idle(replica)

    def room_at(self, replica: Replica) -> None:
        """Hand the room that `replica` has to the requests waiting for its pools whose turn it is."""
        if replica.state is not State.READY:
            return  # Nobody may use it; what is left there ends without a look at each waiter.
        if self._turns is None:
            while self._queue.waiters and replica.has_room and self._grant_next(replica):
                pass
            return
        self._take_turns(replica, self._turns)

    def reconfigure(self, plan: PolicyPlan, rules: QueueRules) -> None:
        """Go on under other settings, and see who finds room under them (`max_outstanding` included).

        Who waits keeps its place within its caller's line and its deadline, and is not shed though
        fewer may wait from now on. Another policy begins without what the one before had learned.
        """
        waiters = list(self._queue.waiters)
        changed = self._desks.replan(plan)
        for waiter in waiters:
            if waiter.pool.model in changed:
                self._release(waiter)
        if rules.shares != self._rules.shares:
            for waiter in waiters:
                self._queue.remove(waiter)
            self._desks.reweigh(rules.shares)
            for waiter in waiters:
                self._queue.add(waiter)
        self._rules = self._grants.rules = rules
        self._offer_rooms({waiter.pool for waiter in waiters})

    # Several workers

    def note_cooling(self, until: float) -> None:
        """Some replica may be cooling off until then."""
        self._grants.cooling_until = max(self._grants.cooling_until, until)

    def anybody_waits(self) -> bool:
        """Whether a request waits in the queue of this worker."""
        return bool(self._queue.waiters)

    def look_again(self) -> None:
        """There may be room for those that wait here."""
        turns = self._turns
        assert turns is not None
        turns.changed()
        turns.tell()
        self._offer_rooms({waiter.pool for waiter in self._queue.waiters})
        turns.looked()

    def _others_wait(self, pool: Pool) -> bool:
        """Whether somebody waits for this pool at another worker."""
        return self._turns is not None and self._turns.others_wait(pool)

    def _take_turns(self, replica: Replica, turns: Turns) -> None:
        """Give room to the next of all workers' waiters: to those of other workers by telling them."""
        while replica.has_room:
            if not turns.is_ours(replica):
                return
            if not self._queue.waiters:
                return
            if not self._grant_next(replica):
                turns.decline(replica)
                return
            turns.changed()
            turns.tell()
        turns.no_room(replica)

    # What the fleet tells

    def ready(self, replica: Replica) -> None:
        """It takes requests: those that wait are served first."""
        self.room_at(replica)

    def widened(self, replica: Replica) -> None:
        """It takes more requests, or others: those that wait are served first."""
        self._let_go([one for one in self._holds.of(replica) if replica not in one.pool.ready])
        self.room_at(replica)

    def lost(self, replica: Replica) -> None:
        """It takes no requests any more: who was held for it may go elsewhere."""
        self._let_go(self._holds.of(replica))

    def removed(self, replica: Replica) -> None:
        """Forget it; who waits for it and no other waits in vain."""
        for waiter in [one for one in self._queue.waiters if one.only is replica]:
            self._put_out(waiter, ResponseNotFound(OWNER_GONE))
        self._desks.removed(replica)

    # The queue

    def _grant_next(self, replica: Replica) -> bool:
        """Grant the next waiter that `replica` can serve; False when there is none."""
        asked: list[Waiter] = []

        def take(waiter: Waiter) -> bool:
            if not waiter.may_use(replica):
                return False
            # Those that are held are counted, and it is not to be counted against itself.
            self._holds.drop(waiter)
            lease = self._lease(
                waiter.request, waiter.pool, waiter.exchange, waiter.tried, waiter.only, waiter.since
            )
            if isinstance(lease, Wait):
                self._hold(waiter, lease)
            if not isinstance(lease, Lease):
                asked.append(waiter)
                return False
            waiter.account.book.charge(waiter.account)
            self._leave(waiter)
            self._queue.shift(waiter.account)
            waiter.granted.set_result(lease)
            return True

        granted = self._queue.offer([card["id"] for card in replica.cards or ()], take, replica)
        for waiter in asked:
            self._queue.move(waiter, self._holds.awaited_by(waiter))
        return granted

    def _enter(self, waiter: Waiter) -> None:
        """Queue a request, in place of another if need be; raises `QueueFull`."""
        ledger, model, turns = self._ledger, waiter.pool.model, self._turns
        waiter.since = self._clock()
        if turns is None:
            if len(self._queue.waiters) >= self._rules.requests:
                self._make_room(waiter)
        elif not turns.enter(self._rules.requests):
            self._make_room(waiter)
            turns.enter(None)
        self._queue.add(waiter)
        if turns is not None:
            turns.changed()
            turns.tell()
            self._poll.start()
        waiter.exchange.stage = Stage.QUEUED
        ledger.queued[model] = ledger.queued.get(model, 0) + 1
        waiter.counted = True
        ledger.hold(waiter.exchange, waiter.since)

    def _make_room(self, newcomer: Waiter) -> None:
        shed = self._queue.to_shed_for(newcomer.account, newcomer.exchange.priority)
        if shed is None:
            here = f"{counted(self._grants.queued, 'request')} (setting admission.max_queued)"
            raise QueueFull(f"The queue is full with {here}; try again shortly.")
        full = "The queue is full, and this request had to make room; try again shortly."
        self._put_out(shed, QueueFull(full))

    def _put_out(self, waiter: Waiter, error: RouterError) -> None:
        """It waits in vain, and its place is free. It counts as queued until its own task takes note."""
        self._take_out(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)

    def _take_out(self, waiter: Waiter) -> None:
        if self._queue.remove(waiter) and self._turns is not None:
            self._turns.left()
        self._holds.drop(waiter)

    def _leave(self, waiter: Waiter) -> None:
        self._take_out(waiter)
        if waiter.counted:
            waiter.counted = False
            self._ledger.queued[waiter.pool.model] -= 1
            self._ledger.let_go(waiter.exchange)

    def _hold(self, waiter: Waiter, wait: Wait) -> None:
        left = self._rules.most_held - (self._clock() - waiter.since)
        self._holds.hold(waiter, wait, most=left if left > 0 else LONGEST)

    def _ask_again(self, waiter: Waiter) -> None:
        """It has been held for long enough."""
        self._let_go((waiter,))

    def _let_go(self, waiters: Sequence[Waiter]) -> None:
        """Hold them no more, and see who has room for them."""
        for waiter in waiters:
            self._release(waiter)
        self._offer_rooms({waiter.pool for waiter in waiters})

    def _release(self, waiter: Waiter) -> None:
        self._holds.drop(waiter)
        self._queue.move(waiter, None)

    def _offer_rooms(self, pools: Iterable[Pool]) -> None:
        for pool in pools:
            for replica in pool.ready:
                self.room_at(replica)


def _why_none(pool: Pool, tried: Sequence[Replica]) -> str:
    if tried:
        return "No other replica is ready to take this request; try again shortly."
    return f"No replica of this model is ready (it has {len(pool.replicas)}); try again shortly."
