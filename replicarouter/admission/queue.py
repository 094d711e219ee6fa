"""Requests that wait for a replica with room: first come, first served within each pool."""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicarouter.admission.lease import Lease
from replicarouter.exchange import Exchange
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.request import InferenceRequest


@dataclass(slots=True, eq=False)
class Waiter:
    """One queued request. `granted` resolves with its lease; whoever resolves it must find it open."""

    serial: int
    request: InferenceRequest
    pool: Pool
    exchange: Exchange
    tried: Sequence[Replica]
    granted: "asyncio.Future[Lease]"

    def may_use(self, replica: Replica) -> bool:
        """Whether `replica` could serve it, and it still waits."""
        return not self.granted.done() and replica in self.pool.ready and replica not in self.tried


class Queue:
    """Waiters by pool, each in order of arrival. Removal from anywhere is one step."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, waiter: Waiter) -> None:
        """Queue a request behind all others of its pool."""
        self._waiters.setdefault(waiter.pool.model, {})[waiter] = None
        self._length += 1

    def remove(self, waiter: Waiter) -> bool:
        """Take a request out; False when it is not there any more."""
        waiters = self._waiters.get(waiter.pool.model, {})
        if waiter not in waiters:
            return False
        del waiters[waiter]
        self._length -= 1
        return True

    def waiting_for(self, pool: Pool) -> bool:
        """Whether anybody waits for this pool."""
        return bool(self._waiters.get(pool.model))

    def oldest_first(self, models: Sequence[str]) -> Iterator[Waiter]:
        """The waiters of these pools in order of arrival. The queue must not change meanwhile."""
        pools = [waiters for model in models if (waiters := self._waiters.get(model))]
        return heapq.merge(*pools, key=lambda waiter: waiter.serial)
