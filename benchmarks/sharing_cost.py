"""What does it cost that several workers count together? Microseconds of each request, part by part.

    python -m benchmarks.sharing_cost
    python -m benchmarks.sharing_cost --repetitions 31 --neighbours 1

Each part is what one request does in it, once with the cells of a process that is alone and once with those
that workers share; both take turns. With `--neighbours` other processes do the same all the time, as workers
that are busy with nothing else would. The sum is that of the settings' defaults; the rows below it are for
limits of each replica, and for requests that have to wait.
"""

import argparse
import asyncio
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from replicarouter.admission.controller import Admission
from replicarouter.admission.decisions import Decisions
from replicarouter.admission.desk import Desks
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.plan import PolicyPlan
from replicarouter.commons.heads import Head
from replicarouter.commons.layout import ANY
from replicarouter.commons.memory import Commons
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.common_memory import CommonBodyMemory
from replicarouter.proxy.common_slots import CommonSlots
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.slots import Slots
from replicarouter.settings import ReplicaSettings
from replicarouter.telemetry.metrics import Metrics

REPLICAS = 8
PATH = "/v1/chat/completions"
MOST = 2.0
"""Microseconds that sharing may cost each request."""

ROUND = 0.02
"""Seconds that one repetition takes at least."""

Call = Callable[[], object]


def main() -> int:
    """Measure, print the table, and return 1 if sharing costs more than it may."""
    return asyncio.run(compare(parse()))


async def compare(arguments: argparse.Namespace) -> int:
    """The same; on a loop, since bodies want one."""
    commons = Commons(1 + arguments.neighbours)
    rows = [commons.add_row() for _ in range(REPLICAS)]
    with busy_neighbours(commons, rows, arguments.neighbours):
        alone, shared = Desk.of_one(), Desk.of_worker(commons, 0, rows)
        print(f"{'part of a request':46}{'alone':>8}{'shared':>9}{'more':>8}  µs")
        total = 0.0
        for about, one, other in zip(PARTS, alone.parts(), shared.parts(), strict=True):
            before, after = measure(one, other, arguments.repetitions)
            total += after - before
            print(f"{about:46}{before:>8.2f}{after:>9.2f}{after - before:>8.2f}", flush=True)
        print(f"{'all':63}{total:>8.2f}")
        alone, shared = Desk.of_one(64, 64), Desk.of_worker(commons, 0, rows, 64, 64)
        for about, one, other in zip(LIMITED, alone.parts(), shared.parts(), strict=False):
            before, after = measure(one, other, arguments.repetitions)
            print(f"{about:46}{before:>8.2f}{after:>9.2f}{after - before:>8.2f}", flush=True)
        for about, call in waiting(commons, shared):
            print(f"{about:46}{'':>8}{measure(call, call, arguments.repetitions)[1]:>9.2f}")
    return 1 if total > MOST else 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15, help="of which the median is shown")
    parser.add_argument(
        "--neighbours", type=int, default=0, help="other processes that are at it all the time"
    )
    return parser.parse_args()


PARTS = (
    "grant, two stages, give back; 8 replicas",
    "connector slot, limit of all",
    "connection taken and given back",
    "four counters, three times",
    "a body's bytes",
    "body arriving",
)

LIMITED = ("the same grant, with a limit for each replica", "the same slot, with a limit for each replica")


@dataclass
class Desk:
    """What one request meets, of a process that is alone or of a worker."""

    fleet: Fleet
    admission: Admission
    slots: Slots
    memory: BodyMemory
    metrics: Metrics

    @classmethod
    def of_one(cls, most: int = 0, each: int = 0) -> "Desk":
        """Nobody shares."""
        fleet = Fleet([settings(number) for number in range(REPLICAS)], Ledger(), most=most)
        make = partial(Slots, limit=4096, limit_per_replica=each)
        slots = make(timeout=60.0, ledger=fleet.ledger, clock=time.monotonic)
        return cls._of(fleet, slots, BodyMemory(2**30), Metrics())

    @classmethod
    def of_worker(cls, commons: Commons, index: int, rows: list[int], most: int = 0, each: int = 0) -> "Desk":
        """A worker's; with so many requests, and connections, for each replica."""
        seat = commons.seat(index)
        fleet = Fleet((), WorkerLedger(seat), most=most)
        for number, row in enumerate(rows):
            fleet.join(settings(number), "file", row)
        make = partial(CommonSlots, seat, limit=4096, limit_per_replica=each)
        slots = make(timeout=60.0, ledger=fleet.ledger, clock=time.monotonic)
        return cls._of(fleet, slots, CommonBodyMemory(2**30, seat), Metrics(seat.shelf))

    @classmethod
    def _of(cls, fleet: Fleet, slots: Slots, memory: BodyMemory, metrics: Metrics) -> "Desk":
        for replica in fleet:
            fleet.list_models(replica, [{"id": "m"}])
            fleet.tell(replica, Event.PASSED, "said so")
        admission = Admission(
            fleet.ledger,
            Desks(PolicyPlan("least-outstanding"), metrics, Decisions(0)),
            rules=QueueRules(1000, 60.0),
            clock=time.monotonic,
            random=Random(1),
            idle=lambda _: None,
        )
        return cls(fleet, admission, slots, memory, metrics)

    def parts(self) -> tuple[Call, ...]:
        """What `PARTS` says."""
        return self._lease(), self._slot, self._connection(), self._count(), self._body, self._receive()

    def _lease(self) -> Call:
        admission, pool = self.admission, self.fleet.pool_for("m")
        endpoint = Endpoints().find(PATH)
        assert endpoint is not None
        request = InferenceRequest(endpoint, "m")
        exchange = Exchange(method="POST", path=PATH, endpoint=PATH, accepted_at=0.0)

        def call() -> None:
            lease = admission.grant(request, pool, exchange, ())
            assert lease is not None
            lease.move(Stage.SENT)
            lease.move(Stage.STREAMING)
            admission.give_back(lease, pool, outcome="ok", failed=False)

        return call

    def _slot(self) -> None:
        row = self.fleet.replicas[0].row
        self.slots.take_now(row)
        self.slots.give_back(row)

    def _connection(self) -> Call:
        counts = self.fleet.ledger.connections_of(self.fleet.replicas[0].row)

        def call() -> None:
            counts.busy += 1
            counts.busy -= 1

        return call

    def _count(self) -> Call:
        ledger, metrics = self.fleet.ledger, self.metrics

        def call() -> None:
            ledger.arrived.add((PATH,))
            ledger.attempts.add(("r1", "ok"))
            ledger.finished.add((PATH, "m", "r1", "ok"))
            metrics.tokens.add(("m", "prompt"), 100)
            metrics.queue.of(("m",)).observe(0.001)
            metrics.connect.of(("r1",)).observe(0.001)
            metrics.request.of((PATH, "ok")).observe(0.1)

        return call

    def _body(self) -> None:
        self.memory.take(1000)
        self.memory.give_back(1000)

    def _receive(self) -> Call:
        ledger = self.fleet.ledger

        def call() -> None:
            ledger.receiving += 1
            ledger.receiving -= 1

        return call


def settings(number: int) -> ReplicaSettings:
    """A replica that is nowhere."""
    return ReplicaSettings.model_validate({"url": f"http://r{number}.invalid:8000", "name": f"r{number}"})


def waiting(commons: Commons, desk: Desk) -> Iterator[tuple[str, Call]]:
    """What is done besides for a request that has to wait."""
    ledger = desk.fleet.ledger
    assert ledger.seat is not None
    seat, row = ledger.seat, desk.fleet.replicas[0].row
    heads = [Head(5, 0, ANY, -1, 0, 0, 1.0, 0.0, float(number)) for number in range(4)]

    def enter_and_leave() -> None:
        seat.enter_queue(1000)
        seat.leave_queue()

    yield "waiting: entering the queue and leaving it", enter_and_leave
    yield "waiting: telling of four heads", lambda: seat.tell_heads(heads)
    seat.tell_heads(heads)
    yield "waiting: whose turn is it, of four", lambda: seat.first_of(seat.heads_for({5}, row))
    seat.tell_heads([])
    yield "waiting: ringing another worker's bell", lambda: seat.ring(commons.workers - 1)


def measure(one: Call, other: Call, repetitions: int) -> tuple[float, float]:
    """The medians over the repetitions, in microseconds for one call of each."""
    count, taken = 64, 0.0
    while taken < ROUND:
        count *= 2
        taken = timed(other, count)
    pairs = [(timed(one, count), timed(other, count)) for _ in range(repetitions)]
    before, after = [statistics.median(each) / count * 1e6 for each in zip(*pairs, strict=True)]
    return before, after


def timed(call: Call, count: int) -> float:
    """Seconds of this process that so many calls take: those of others do not count."""
    started = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - started


@contextmanager
def busy_neighbours(commons: Commons, rows: list[int], count: int) -> Iterator[None]:
    """So many other processes lease, and take slots, as fast as they can."""
    pids = []
    for index in range(count):
        pid = os.fork()
        if pid == 0:
            parts = Desk.of_worker(commons, 1 + index, rows, 64, 64).parts()[:-2]
            while True:
                for part in parts:
                    part()
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    raise SystemExit(main())
