"""Connector slots: who may have an upstream connection when their number is limited.

The connector's own limit is the same number, but its queue lets newcomers overtake those who wait
and shows nobody. This one is first come, first served, is bounded in time, and counts in the ledger.
"""

import asyncio
import logging
from collections import deque

from replicarouter.clock import Clock, Seldom
from replicarouter.errors import QueueTimeout
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger

log = logging.getLogger(__name__)

Waiter = tuple["asyncio.Future[None]", int, float]
"""A request that waits for a slot, the row of the replica it was given, and since when it waits."""


class Slots:
    """At most `limit` connections in all and `limit_per_replica` to one replica; 0 means no limit.

    `timeout` bounds the wait for a slot, in seconds; it may be replaced at any time, for those that come.
    """

    def __init__(
        self, *, limit: int, limit_per_replica: int, timeout: float, ledger: Ledger, clock: Clock
    ) -> None:
        self.limit = limit
        self._limit_per_replica = limit_per_replica
        self.timeout = timeout
        self._ledger = ledger
        self._clock = clock
        self._taken = 0
        self._taken_by: dict[int, int] = {}
        self._waiters: deque[Waiter] = deque()
        self._reached = Seldom()

    def take_now(self, row: int) -> bool:
        """Take a slot for the replica that owns `row` if one is free."""
        # `_free` and `_grant`, without the calls: this happens for every request.
        taken = self._taken_by.get(row, 0)
        limit = self._limit_per_replica
        if (self.limit and self._taken >= self.limit) or (limit and taken >= limit):
            return False
        self._taken += 1
        self._taken_by[row] = taken + 1
        return True

    async def wait(self, row: int, exchange: Exchange) -> None:
        """Wait in line for a slot; raises `QueueTimeout` after `admission.queue_timeout`."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        now = self._clock()
        waiter = (granted, row, now)
        self._waiters.append(waiter)
        ledger = self._ledger
        ledger.waiting_for_slot += 1
        ledger.hold(exchange, now)
        self._tell_reached(exchange, now)
        try:
            self._come()
            async with asyncio.timeout(self.timeout or None):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                # Granted, but this request had already given up: the slot must not be lost.
                self.give_back(row)
            else:
                self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise QueueTimeout(
                    "All connections to replicas are in use; try again later. "
                    "The operator can raise connector.limit."
                ) from None
            raise
        finally:
            ledger.waiting_for_slot -= 1
            ledger.let_go(exchange)
            self._gone()

    def give_back(self, row: int) -> None:
        """Return a slot and wake the first waiter who can use it."""
        self._taken -= 1
        self._taken_by[row] -= 1
        for waiter in self._waiters:
            granted, wanted, _ = waiter
            if not granted.done() and self._free(wanted):
                self._waiters.remove(waiter)
                self._grant(wanted)
                granted.set_result(None)
                return

    def _come(self) -> None:
        """One more waits; there was no slot for it."""

    def _gone(self) -> None:
        """One waits no more."""

    def _tell_reached(self, exchange: Exchange, now: float) -> None:
        count = self._reached.tell(now)
        if count:
            facts = {
                "limit": self.limit,
                "limit_per_replica": self._limit_per_replica,
                "waiting": len(self._waiters),
                "replica": exchange.replica,
                "count": count,
            }
            log.warning("connector limit reached", extra=facts)

    def _free(self, row: int) -> bool:
        if self.limit and self._taken >= self.limit:
            return False
        limit = self._limit_per_replica
        return not limit or self._taken_by.get(row, 0) < limit

    def _grant(self, row: int) -> None:
        self._taken += 1
        self._taken_by[row] = self._taken_by.get(row, 0) + 1
