"""Policies that do as they are told, and a fleet with its admission and those who wait there."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from replicarouter.admission.controller import Admission
from replicarouter.admission.decisions import Decisions
from replicarouter.admission.desk import Desks
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.lease import Lease
from replicarouter.admission.plan import PolicyPlan
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Forgetful, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.settings import PolicyOptions
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.wire import eventually
from tests.scene import HandClock, a_fleet, a_request, an_exchange

MakePolicy = Callable[[], Policy]


class Stubborn(Forgetful):
    """Prefers the first candidate, and writes down what it is told."""

    learns = True

    def __init__(self) -> None:
        self.told: list[str] = []
        self.seen: list[list[str]] = []
        self.endings: list[Ending] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        self.seen.append([replica.name for replica in view.candidates])
        return view.candidates[0]

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append(f"sent {replica.name}")

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append(f"began {replica.name} {now:g}")

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        self.told.append(f"finished {replica.name} {ending.outcome}")
        self.endings.append(ending)

    def removed(self, replica: Replica) -> None:
        self.told.append(f"removed {replica.name}")


class Patient(Stubborn):
    """Asks to wait for the first replica as long as it has anything outstanding."""

    seconds = 60.0

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        super().pick(request, view)
        first = view.replicas[0]
        return Wait(first, self.seconds) if first.outstanding else first


class Last(Stubborn):
    """Prefers the last candidate."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        super().pick(request, view)
        return view.candidates[-1]


def a_plan(
    make_policy: MakePolicy = Stubborn, shadow: MakePolicy | None = None, **options: Any
) -> PolicyPlan:
    """A plan by which every pool has the same policy, and the same shadow if there is one.

    `options` are the policies' settings.
    """
    if shadow is not None:
        options["shadow"] = "random"
    table = {"session": made_by(make_policy), "random": made_by(shadow or Stubborn)}
    return PolicyPlan("session", options=PolicyOptions(**options), table=table)


def made_by(make: MakePolicy) -> type[Policy]:
    """What a table of policies holds, for policies that `make` makes."""
    if isinstance(make, type):
        return make

    class Made(Forgetful):
        needs = Needs.NOTHING

        def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
            raise NotImplementedError

        @classmethod
        def of(cls, options: PolicyOptions) -> Any:
            return make()

    return Made


def desks_for(plan: PolicyPlan, *, decisions: int = 0) -> Desks:
    """The desks of a plan, with counters and a store of decisions of their own."""
    return Desks(plan, Metrics(), Decisions(decisions))


def admission_for(
    fleet: Fleet,
    make_policy: MakePolicy | PolicyPlan | Desks = Stubborn,
    *,
    requests: int = 100,
    seconds: float = 0.0,
    shares: Mapping[str, float] | None = None,
    clock: HandClock | None = None,
) -> Admission:
    plan = make_policy if isinstance(make_policy, PolicyPlan | Desks) else a_plan(make_policy)
    admission = Admission(
        fleet.ledger,
        plan if isinstance(plan, Desks) else desks_for(plan),
        rules=QueueRules(requests, seconds, shares or {}),
        clock=clock or HandClock(),
        random=Random(7),
        idle=fleet.idle,
    )
    fleet.listeners.append(admission)
    return admission


class Scene:
    """A fleet, its admission, and the requests that wait there, by number."""

    def __init__(
        self, fleet: Fleet, admission: Admission, pool: Pool, clock: HandClock | None = None
    ) -> None:
        self.fleet, self.admission, self.pool = fleet, admission, pool
        self.clock = clock or HandClock()
        self.waiting: dict[int, asyncio.Future[Lease]] = {}
        self.exchanges: dict[int, Exchange] = {}

    def grant(self, tried: list[Replica] | None = None, caller: str = "") -> Lease | None:
        exchange = an_exchange(caller=caller, model=self.pool.model)
        return self.admission.grant(a_request(), self.pool, exchange, tried or [])

    def granted(self, tried: list[Replica] | None = None, caller: str = "") -> Lease:
        lease = self.grant(tried, caller)
        assert lease is not None
        return lease

    async def queue(
        self, number: int, tried: list[Replica] | None = None, caller: str = "", priority: int = 0
    ) -> None:
        """Let a request wait; returns when it is in the queue (or has been granted at once)."""
        exchange = an_exchange(
            upstream_id=str(number), caller=caller, priority=priority, model=self.pool.model
        )
        self.exchanges[number] = exchange
        work = self.admission.wait(a_request(), self.pool, exchange, tried or [])
        self.waiting[number] = asyncio.ensure_future(work)
        await eventually(
            lambda: exchange.stage is not Stage.RECEIVING or self.waiting[number].done(), "queued"
        )

    async def ask(self, number: int) -> None:
        """Let a request come as it does: it is granted at once, or queued."""
        exchange = an_exchange(upstream_id=str(number), model=self.pool.model)
        self.exchanges[number] = exchange
        request = a_request()

        async def come() -> Lease:
            at_once = self.admission.grant(request, self.pool, exchange, [])
            return at_once or await self.admission.wait(request, self.pool, exchange, [])

        self.waiting[number] = asyncio.ensure_future(come())
        await eventually(lambda: exchange.stage is not Stage.RECEIVING, "granted or queued")

    def give_back(self, lease: Lease, *, outcome: str = "ok", failed: bool = False) -> None:
        self.admission.give_back(lease, self.pool, outcome=outcome, failed=failed)

    async def serve_all(self, lease: Lease) -> str:
        """Give one lease after the other back; whose requests came in which order."""
        order: list[str] = []
        while True:
            served = set(await self.served())
            self.give_back(lease)
            fresh = set(await self.served()) - served
            if not fresh:
                return " ".join(order)
            (number,) = fresh
            order.append(self.exchanges[number].caller)
            lease = self.waiting[number].result()

    async def served(self) -> list[int]:
        """Who has been granted a lease, after everybody had a chance to see it."""
        for _ in range(3):
            await asyncio.sleep(0)
        return [number for number, one in self.waiting.items() if one.done() and not one.cancelled()]


def a_scene(
    *replicas: str, most: int = 1, make_policy: MakePolicy | PolicyPlan | Desks = Stubborn, **rules: Any
) -> Scene:
    fleet = a_fleet(*(replicas or ("a",)), most=most)
    clock = HandClock()
    admission = admission_for(fleet, make_policy, clock=clock, **rules)
    return Scene(fleet, admission, fleet.pool_for("m1"), clock)
