"""Requests that wait for a replica with room: the most urgent first, then fair between callers, then
first come, first served."""

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from replicarouter.admission.backlog import Backlog
from replicarouter.admission.fairness import Account, Book
from replicarouter.admission.lease import Lease
from replicarouter.exchange import Exchange
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.request import InferenceRequest

SLACK = 32
"""Outdated entries that the heap of a lane may hold beside as many as it has valid ones."""


Place = tuple[str, int, Replica | None]
"""Which of its caller's lines a request stands in: model, rank of priority, and the replica that it waits
for if it waits for one alone."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One queued request. `granted` resolves with its lease; whoever resolves it must find it open.
    It waits `since` then, in seconds on the router's clock. `awaited` is for the queue to change; `counted`:
    the ledger has it as queued."""

    serial: int
    request: InferenceRequest
    pool: Pool
    exchange: Exchange
    tried: Sequence[Replica]
    granted: "asyncio.Future[Lease]"
    account: Account
    only: Replica | None = None
    since: float = 0.0
    awaited: Replica | None = None
    counted: bool = False

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.pool.model, self.exchange.priority, self.awaited

    def may_use(self, replica: Replica) -> bool:
        """Whether `replica` could serve it, and it still waits."""
        if self.only is not None and replica is not self.only:
            return False
        return not self.granted.done() and replica in self.pool.ready and replica not in self.tried


Entry = tuple[int, float, int, int, "Line"]
"""What a line is ordered by in its lane: requests held, turn, oldest waiter, an always different number."""


@dataclass(slots=True, eq=False)
class Line:
    """The waiters of one caller in one lane, in order of arrival. `entry` is its valid one in the heap."""

    account: Account
    lane: "Lane"
    waiters: "OrderedDict[Waiter, None]" = field(default_factory=OrderedDict)
    entry: Entry | None = None

    def add(self, waiter: Waiter) -> None:
        """Let one more wait in its order. Whoever has stood elsewhere is older than nearly all."""
        waiters = self.waiters
        last = next(reversed(waiters), None)
        waiters[waiter] = None
        if last is not None and last.serial > waiter.serial:
            older = list(takewhile(lambda one: one.serial < waiter.serial, waiters))
            for one in (waiter, *reversed(older)):
                waiters.move_to_end(one, last=False)


class Lane:
    """The lines for one model and those who await one replica or any, in one rank of priority, of callers
    of one weight."""

    __slots__ = ("_heap", "_serial", "lines", "rank", "weight")

    def __init__(self, rank: int, weight: float) -> None:
        self.rank = rank
        self.weight = weight
        self.lines = 0
        self._heap: list[Entry] = []
        self._serial = itertools.count()

    def place(self, line: Line) -> None:
        """Put a line where it belongs by now; it must have a waiter."""
        account, old = line.account, line.entry
        key = (account.total, account.due, next(iter(line.waiters)).serial)
        if old is not None and old[:3] == key:
            return
        line.entry = (*key, next(self._serial), line)
        heapq.heappush(self._heap, line.entry)
        if len(self._heap) > 2 * self.lines + SLACK:
            self._heap = [entry for entry in self._heap if entry is entry[-1].entry]
            heapq.heapify(self._heap)

    def first(self) -> Entry | None:
        """The first line's entry; None when no line is left."""
        while self._heap:
            entry = self._heap[0]
            if entry is entry[-1].entry:
                return entry
            heapq.heappop(self._heap)
        return None

    def set_aside(self) -> None:
        """Take the first entry out, until `put_back`."""
        heapq.heappop(self._heap)

    def put_back(self, entry: Entry) -> None:
        """Put an entry back that was set aside, unless another has taken its place."""
        if entry is entry[-1].entry:
            heapq.heappush(self._heap, entry)


class Queue:
    """All waiters. Coming, going from anywhere, and finding the next are logarithmic in their number.

    Among the lines of one rank those come first whose callers hold fewest requests for their weight,
    and among these the earliest turn. With whole requests, "fewest" is meant as in worst-case fair
    queueing (J. Bennett, H. Zhang, 1996): out are those who would still be above another caller's
    share if that one had one more. Within one weight this is plain order, so that a heap for each
    weight has only its first line compared with those of the others.

    Callers of different books have nothing to compare: between these the older request comes first.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, Replica | None], dict[tuple[int, float], Lane]] = {}
        self._backlogs: dict[int, Backlog] = {}
        self._accounts: dict[Account, None] = {}
        self.waiters: dict[Waiter, None] = {}
        """Everybody, in order of arrival. To be read only."""

    def add(self, waiter: Waiter) -> None:
        """Queue a request behind all others of its caller, model and rank."""
        self.waiters[waiter] = None
        account = waiter.account
        if not account.lines:
            self._accounts[account] = None
            account.book.begin(account)
        self._line_up(waiter)
        rank = waiter.exchange.priority
        if rank not in self._backlogs:
            self._backlogs[rank] = Backlog()
        self._backlogs[rank].add(account)

    def remove(self, waiter: Waiter) -> bool:
        """Take a request out; False when it is not there any more."""
        if waiter not in self.waiters:
            return False
        del self.waiters[waiter]
        account = waiter.account
        self._step_out(waiter, waiter.place)
        rank = waiter.exchange.priority
        self._backlogs[rank].remove(account)
        if not self._backlogs[rank]:
            del self._backlogs[rank]
        return True

    def move(self, waiter: Waiter, awaited: Replica | None) -> None:
        """Let a request wait for one replica alone, or for any with None. It is as old as before."""
        if awaited is waiter.awaited:
            return
        before, waiter.awaited = waiter.place, awaited
        if waiter in self.waiters:
            self._line_up(waiter)
            self._step_out(waiter, before)

    def shift(self, account: Account) -> None:
        """What its caller holds, or its turn, has changed: move its lines to where they belong."""
        for line in account.lines.values():
            line.lane.place(line)

    def shift_all(self) -> None:
        """The same for all callers: what they hold elsewhere has changed."""
        for account in self._accounts:
            self.shift(account)

    @property
    def callers(self) -> int:
        """How many callers wait."""
        return len(self._accounts)

    def fronts(self, most: int) -> list[Waiter]:
        """Who would be served first by a replica of each model, and by each that is awaited alone: up to the
        first that may use any replica, and `most` of each kind."""
        return [waiter for lanes in self._lanes.values() for waiter in _front(list(lanes.values()), most)]

    def waiting_for(self, pool: Pool) -> bool:
        """Whether anybody waits for this pool, and not for one replica alone."""
        return (pool.model, None) in self._lanes

    def offer(
        self, models: Iterable[str], take: Callable[[Waiter], bool], replica: Replica | None = None
    ) -> bool:
        """Offer something to the waiters for these models in their order, until one says it took it; to
        those who wait for `replica` alone, too, and to those who wait for another one not.

        `take` may change the queue only when it takes. False when nobody does.
        """
        awaited = (None,) if replica is None else (None, replica)
        lanes = [lane for model in models for one in awaited for lane in self._lanes_at(model, one)]
        ranks = sorted({lane.rank for lane in lanes})
        return any(_offer([lane for lane in lanes if lane.rank == rank], take) for rank in ranks)

    def to_shed_for(self, account: Account, rank: int) -> Waiter | None:
        """Who has to leave a full queue for a newcomer; None: nobody, the newcomer cannot enter.

        It is the newest request of the least urgent rank, of the caller with most requests there for
        its weight; and only if the newcomer is more urgent, or its caller has fewer even with it.
        """
        worst = max(self._backlogs, default=rank)
        backlog = self._backlogs.get(worst)
        if backlog is None or rank > worst:
            return None
        largest = backlog.largest()
        if rank == worst and backlog.size(account, more=1) >= backlog.size(largest):
            return None
        lines = [line for (_, where, _), line in largest.lines.items() if where == worst]
        return max((next(reversed(line.waiters)) for line in lines), key=lambda one: one.serial)

    def _lanes_at(self, model: str, awaited: Replica | None) -> Iterable[Lane]:
        lanes = self._lanes.get((model, awaited))
        return () if lanes is None else lanes.values()

    def _line_up(self, waiter: Waiter) -> None:
        lines, place = waiter.account.lines, waiter.place
        line = lines.get(place)
        if line is None:
            line = lines[place] = self._new_line(waiter)
        line.add(waiter)
        line.lane.place(line)

    def _step_out(self, waiter: Waiter, place: Place) -> None:
        line = waiter.account.lines[place]
        del line.waiters[waiter]
        if line.waiters:
            line.lane.place(line)
        else:
            self._close(place, line)

    def _new_line(self, waiter: Waiter) -> Line:
        (model, rank, awaited), account = waiter.place, waiter.account
        lanes = self._lanes.setdefault((model, awaited), {})
        lane = lanes.get((rank, account.weight))
        if lane is None:
            lane = lanes[rank, account.weight] = Lane(rank, account.weight)
        lane.lines += 1
        return Line(account, lane)

    def _close(self, place: Place, line: Line) -> None:
        """Take away a line in which nobody waits."""
        (model, rank, awaited), lane, account = place, line.lane, line.account
        line.entry = None
        lane.lines -= 1
        if not lane.lines:
            lanes = self._lanes[model, awaited]
            del lanes[rank, lane.weight]
            if not lanes:
                del self._lanes[model, awaited]
        del account.lines[place]
        if not account.lines:
            del self._accounts[account]
            account.book.end(account)


def _front(lanes: Sequence[Lane], most: int) -> list[Waiter]:
    front: list[Waiter] = []

    def note(waiter: Waiter) -> bool:
        front.append(waiter)
        return len(front) == most or (not waiter.tried and waiter.only is None)

    for rank in sorted({lane.rank for lane in lanes}):
        if _offer([lane for lane in lanes if lane.rank == rank], note):
            break
    return front


def _offer(lanes: Sequence[Lane], take: Callable[[Waiter], bool]) -> bool:
    """Offer to the lines of one rank in fair order."""
    passed: list[tuple[Lane, Entry]] = []
    try:
        while True:
            firsts = [entry for lane in lanes if (entry := lane.first()) is not None]
            if not firsts:
                return False
            entry = firsts[0] if len(firsts) == 1 else _next(firsts)
            line = entry[-1]
            if any(take(waiter) for waiter in line.waiters):
                return True
            line.lane.set_aside()
            passed.append((line.lane, entry))
    finally:
        for lane, entry in passed:
            lane.put_back(entry)


def _next(firsts: Sequence[Entry]) -> Entry:
    """Of the first lines of several lanes, the one whose turn it is."""
    by_book: dict[Book, list[Entry]] = {}
    for entry in firsts:
        by_book.setdefault(entry[-1].account.book, []).append(entry)
    return min((_fairest(entries) for entries in by_book.values()), key=lambda entry: entry[2])


def _fairest(entries: Sequence[Entry]) -> Entry:
    level = min((held + 1) / line.lane.weight for held, _, _, _, line in entries)
    # None is left where the quotients are too large for a float: nothing is said of them.
    below = [entry for entry in entries if entry[0] / entry[-1].lane.weight < level] or entries
    return min(below, key=lambda entry: entry[1:3])
