"""Whose turn it is where requests wait at several workers: the same order as within one queue.

Each worker tells of the first in its queue. Who has room to give looks at all of these, gives it to a request
of its own only if that is due, and else rings the bell of the worker whose request is.
"""

from replicarouter.admission.common_fairness import key_of
from replicarouter.admission.queue import Queue, Waiter
from replicarouter.clock import Clock
from replicarouter.commons.callers import NOBODY
from replicarouter.commons.deference import Deferences
from replicarouter.commons.heads import Head
from replicarouter.commons.layout import ANY, MOST_HEADS, MOST_TRIED
from replicarouter.commons.seat import Seat
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica

FRONT = 4
"""Requests that are told of in place of one that may use any replica: those before it that may not."""

FRESH = 0.005
"""Seconds for which the order of many callers is believed, although what they hold elsewhere changes."""

MOST_NAMES = 4096
"""Names of models whose keys are remembered."""

FEW = 16
"""Callers whose order is made anew each time."""


class Turns:
    """One worker's view of all queues."""

    def __init__(self, seat: Seat, queue: Queue, clock: Clock) -> None:
        self._seat = seat
        self._queue = queue
        self._clock = clock
        self._told: list[Head] = []
        self._stale = False
        self._ordered_at = 0.0
        self._deferences = Deferences(seat, clock)
        self._keys: dict[str, int] = {}

    # The own queue

    def enter(self, most: int | None) -> bool:
        """Count one more in the queue unless `most` (None: no limit) wait there, over all workers."""
        return self._seat.enter_queue(most)

    def left(self) -> None:
        """One has left the own queue."""
        self._seat.leave_queue()
        self._stale = True

    def changed(self) -> None:
        """The order of the own queue may be another one: `tell` will look."""
        self._stale = True

    def tell(self) -> None:
        """Let the others know who is first here."""
        if not self._stale:
            return
        self._stale = False
        self._put_in_order()
        fronts = self._queue.fronts(FRONT)
        if len(fronts) > MOST_HEADS:
            fronts.sort(key=lambda one: (one.exchange.priority, one.since))
        heads = [self._head(waiter) for waiter in fronts[:MOST_HEADS]]
        if heads != self._told:
            self._told = heads
            self._seat.tell_heads(heads)

    def looked(self) -> None:
        """It was looked whether there is room for those that wait here."""
        self._seat.looked()

    # All queues

    @property
    def others_queue(self) -> bool:
        """Whether anybody waits at another worker."""
        return self._seat.others_queue

    def others_wait(self, pool: Pool) -> bool:
        """Whether somebody waits for this pool at another worker: newcomers must not overtake them."""
        seat = self._seat
        return seat.others_queue and seat.others_wait(self._key(pool.model))

    def is_ours(self, replica: Replica) -> bool:
        """Whether the next request for `replica` is one of ours, or nobody's. Else its worker is told."""
        seat = self._seat
        self._put_in_order()
        if not seat.others_queue:
            return True
        self._stale = True
        self.tell()
        models, row = self._models(replica), replica.row
        passed: list[int] = []
        while True:
            first = seat.first_of(seat.heads_for(models, row, passed))
            if first is None or first.seat == seat.index:
                return True
            if self._deferences.leaves(row, first.seat, first.since):
                seat.ring(first.seat)
                return False
            passed.append(first.seat)

    def no_room(self, replica: Replica) -> None:
        """There is none at `replica` any more: whoever had it left to it has taken it, or another one."""
        self._deferences.forget(replica.row)

    def decline(self, replica: Replica) -> None:
        """None of ours can use the room at `replica` now. Somebody else may."""
        seat = self._seat
        self.tell()
        if not seat.others_queue:
            return
        models = self._models(replica)
        seat.decline(models, replica.row)
        self._told = []
        first = seat.first_of(seat.heads_for(models, replica.row, (seat.index,)))
        if first is not None:
            seat.ring(first.seat)

    def _put_in_order(self) -> None:
        now = self._clock()
        if self._queue.callers > FEW and now - self._ordered_at < FRESH:
            return
        self._ordered_at = now
        self._queue.shift_all()

    def _head(self, waiter: Waiter) -> Head:
        account = waiter.account
        alone = waiter.only or waiter.awaited
        here = account.place == NOBODY
        return Head(
            model=self._key(waiter.pool.model),
            rank=waiter.exchange.priority,
            only=ANY if alone is None else alone.row,
            caller=account.place,
            book=account.book.place,
            held=account.held if here else 0,
            weight=account.weight,
            turn=account.turn if here else 0.0,
            since=waiter.since,
            tried=tuple([replica.row for replica in waiter.tried][:MOST_TRIED]),
            seat=self._seat.index,
        )

    def _models(self, replica: Replica) -> set[int]:
        return {self._key(card["id"]) for card in replica.cards or ()}

    def _key(self, model: str) -> int:
        key = self._keys.get(model)
        if key is None:
            if len(self._keys) > MOST_NAMES:
                self._keys.clear()
            key = self._keys[model] = key_of(model)
        return key
