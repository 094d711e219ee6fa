"""Grants: at once or in order, one policy a pool, and nothing lost when somebody gives up."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from replicarouter.admission.controller import Admission, QueueLimits
from replicarouter.admission.lease import Lease
from replicarouter.errors import NoReplica, QueueFull, QueueTimeout
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View, Wait
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.protocol.request import InferenceRequest
from tests.fakes.wire import eventually
from tests.scene import HandClock, a_fleet, a_request, an_exchange, named, replica_settings


class Stubborn:
    """Prefers the first candidate, and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.seen: list[list[str]] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        self.seen.append([replica.name for replica in view.candidates])
        return view.candidates[0]

    def sent(self, request: InferenceRequest, replica: Replica) -> None:
        self.told.append(f"sent {replica.name}")

    def finished(self, request: InferenceRequest, replica: Replica, outcome: str) -> None:
        self.told.append(f"finished {replica.name} {outcome}")

    def removed(self, replica: Replica) -> None:
        self.told.append(f"removed {replica.name}")


class Patient(Stubborn):
    """Asks to wait for the first replica as long as it has anything outstanding."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        first = view.replicas[0]
        return Wait(first) if first.outstanding else first


def admission_for(
    fleet: Fleet,
    make_policy: Callable[[], Policy] = Stubborn,
    *,
    requests: int = 100,
    seconds: float = 0.0,
    clock: HandClock | None = None,
) -> Admission:
    limits = QueueLimits(requests, seconds)
    admission = Admission(
        fleet.ledger, make_policy, limits=limits, clock=clock or HandClock(), random=Random(7)
    )
    fleet.on_ready = admission.room_at
    return admission


class Scene:
    """A fleet, its admission, and the requests that wait there, by number."""

    def __init__(self, fleet: Fleet, admission: Admission, pool: Pool) -> None:
        self.fleet, self.admission, self.pool = fleet, admission, pool
        self.waiting: dict[int, asyncio.Future[Lease]] = {}
        self.exchanges: dict[int, Exchange] = {}

    def grant(self, tried: list[Replica] | None = None) -> Lease | None:
        return self.admission.grant(a_request(), self.pool, an_exchange(), tried or [])

    def granted(self, tried: list[Replica] | None = None) -> Lease:
        lease = self.grant(tried)
        assert lease is not None
        return lease

    async def queue(self, number: int, tried: list[Replica] | None = None) -> None:
        """Let a request wait; returns when it is in the queue (or has been granted at once)."""
        exchange = self.exchanges[number] = an_exchange(upstream_id=str(number))
        work = self.admission.wait(a_request(), self.pool, exchange, tried or [])
        before = self.fleet.ledger.total(Stage.QUEUED)
        self.waiting[number] = asyncio.ensure_future(work)
        await eventually(
            lambda: self.fleet.ledger.total(Stage.QUEUED) > before or self.waiting[number].done(), "queued"
        )

    def give_back(self, lease: Lease, *, outcome: str = "ok", failed: bool = False) -> None:
        self.admission.give_back(lease, a_request(), self.pool, outcome=outcome, failed=failed)

    async def served(self) -> list[int]:
        """Who has been granted a lease, after everybody had a chance to see it."""
        for _ in range(3):
            await asyncio.sleep(0)
        return [number for number, one in self.waiting.items() if one.done() and not one.cancelled()]


def a_scene(
    *replicas: str, most: int = 1, make_policy: Callable[[], Policy] = Stubborn, **limits: float
) -> Scene:
    fleet = a_fleet(*(replicas or ("a",)), most=most)
    return Scene(fleet, admission_for(fleet, make_policy, **limits), fleet.pool_for("m1"))  # type: ignore[arg-type]


# At once


async def test_a_grant_counts_and_says_where_and_when() -> None:
    fleet, clock = a_fleet("a", "b"), HandClock(5.0)
    admission = admission_for(fleet, clock=clock)
    exchange = an_exchange()
    lease = admission.grant(a_request(), fleet.pool_for("m1"), exchange, [])

    assert lease is not None
    assert lease.replica is named(fleet, "a")
    assert (exchange.replica, exchange.leased_at, exchange.stage) == ("a", 5.0, Stage.CONNECTING)
    assert lease.replica.outstanding == 1


async def test_a_policy_is_told_what_was_sent_and_how_it_ended() -> None:
    policy = Stubborn()
    scene = a_scene("a", most=0, make_policy=lambda: policy)
    scene.give_back(scene.granted(), outcome="client_gone")

    assert policy.told == ["sent a", "finished a client_gone"]


async def test_each_pool_has_a_policy_of_its_own() -> None:
    made: list[Stubborn] = []

    def make() -> Policy:
        made.append(Stubborn())
        return made[-1]

    fleet = a_fleet("a", models=("m1", "m2"))
    admission = admission_for(fleet, make)
    for model in ("m1", "m2", "m1"):
        admission.grant(a_request(model), fleet.pool_for(model), an_exchange(), [])

    assert [len(policy.seen) for policy in made] == [2, 1]


async def test_a_replica_that_was_tried_is_no_candidate() -> None:
    scene = a_scene("a", "b", "c", most=0)
    first = scene.granted().replica
    second = scene.granted([first]).replica
    third = scene.granted([first, second]).replica

    assert [one.name for one in (first, second, third)] == ["a", "b", "c"]
    with pytest.raises(NoReplica):
        scene.grant([first, second, third])


async def test_without_a_ready_replica_there_is_none() -> None:
    scene = a_scene("a")
    scene.fleet.tell(named(scene.fleet, "a"), Event.FAILED, "gone")
    with pytest.raises(NoReplica):
        scene.grant()


async def test_a_full_replica_is_no_candidate() -> None:
    scene = a_scene("a", "b", most=1)

    assert [scene.granted().replica.name, scene.granted().replica.name] == ["a", "b"]
    assert scene.grant() is None


async def test_a_replica_with_its_own_limit_takes_more() -> None:
    fleet = a_fleet(replica_settings("a"), replica_settings("b", max_outstanding=2), most=1)
    scene = Scene(fleet, admission_for(fleet), fleet.pool_for("m1"))

    assert [scene.granted().replica.name for _ in range(3)] == ["a", "b", "b"]
    assert scene.grant() is None


async def test_only_a_failure_is_held_against_the_replica() -> None:
    scene = a_scene("a", most=0)
    replica = named(scene.fleet, "a")
    scene.give_back(scene.granted(), outcome="ok")
    assert replica.load(1000.0) == 0

    scene.give_back(scene.granted(), outcome="connect_failed", failed=True)
    assert replica.load(1000.0) == 1


# In the queue


async def test_a_waiting_request_is_queued_and_counted() -> None:
    scene = a_scene()
    lease = scene.granted()
    await scene.queue(1)

    assert scene.exchanges[1].stage is Stage.QUEUED
    assert scene.fleet.ledger.queued == {"m1": 1}
    assert scene.fleet.ledger.longest_hold(1001.0) == 1.0
    scene.give_back(lease)
    assert await scene.served() == [1]


async def test_room_goes_to_the_oldest_first() -> None:
    scene = a_scene()
    lease = scene.granted()
    for number in range(5):
        await scene.queue(number)

    for number in range(5):
        scene.give_back(lease)
        assert await scene.served() == list(range(number + 1))
        lease = scene.waiting[number].result()
    scene.give_back(lease)

    assert scene.fleet.ledger.queued == {"m1": 0}
    assert scene.fleet.ledger.longest_hold(2000.0) == 0
    assert list(scene.fleet.ledger.cells) == [0, 0, 0, 0]


async def test_a_newcomer_does_not_overtake() -> None:
    scene = a_scene("a", "b")
    leases = [scene.granted(), scene.granted()]
    await scene.queue(1)
    scene.give_back(leases[0])

    assert await scene.served() == [1]
    assert scene.grant() is None


async def test_a_newcomer_waits_behind_who_cannot_be_served_yet() -> None:
    scene = a_scene("a", "b")
    first, second = scene.granted(), scene.granted()
    await scene.queue(1, tried=[second.replica])
    scene.give_back(second)

    assert scene.grant() is None
    await scene.queue(2)
    assert await scene.served() == [2]
    scene.give_back(first)
    assert await scene.served() == [1, 2]


async def test_a_waiter_is_not_given_what_it_has_tried() -> None:
    scene = a_scene("a", "b")
    first, second = scene.granted(), scene.granted()
    await scene.queue(1, tried=[first.replica])
    scene.give_back(first)
    assert await scene.served() == []

    scene.give_back(second)
    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is second.replica


async def test_a_freed_replica_serves_the_oldest_over_all_its_pools() -> None:
    fleet = a_fleet("a", models=("m1", "m2"), most=1)
    admission = admission_for(fleet)
    one, other = (Scene(fleet, admission, fleet.pool_for(model)) for model in ("m1", "m2"))
    lease = one.granted()
    await other.queue(1)
    await one.queue(2)

    one.give_back(lease)
    assert (await other.served(), await one.served()) == ([1], [])
    other.give_back(other.waiting[1].result())
    assert await one.served() == [2]


async def test_a_replica_that_becomes_ready_takes_those_who_wait() -> None:
    scene = a_scene("a", "b")
    absent = named(scene.fleet, "b")
    scene.fleet.tell(absent, Event.FAILED, "gone")
    scene.granted()
    await scene.queue(1)
    scene.fleet.tell(absent, Event.PASSED, "back")

    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is absent


async def test_who_finds_room_on_entering_the_queue_does_not_wait() -> None:
    scene = a_scene("a")
    await scene.queue(1)

    assert await scene.served() == [1]


async def test_a_policy_may_hold_a_request_for_a_busy_replica() -> None:
    scene = a_scene("a", "b", most=0, make_policy=Patient)
    lease = scene.granted()
    assert scene.grant() is None

    await scene.queue(1)
    assert await scene.served() == []
    scene.give_back(lease)
    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is lease.replica


async def test_a_full_queue_refuses_the_next() -> None:
    scene = a_scene(requests=2)
    scene.granted()
    await scene.queue(1)
    await scene.queue(2)

    with pytest.raises(QueueFull):
        await scene.admission.wait(a_request(), scene.pool, an_exchange(), [])
    assert scene.fleet.ledger.total(Stage.QUEUED) == 2
    for waiting in scene.waiting.values():
        waiting.cancel()


async def test_a_wait_that_is_too_long_ends_with_an_error() -> None:
    scene = a_scene(seconds=0.01)
    lease = scene.granted()
    with pytest.raises(QueueTimeout, match=r"0\.01 seconds"):
        await scene.admission.wait(a_request(), scene.pool, an_exchange(), [])

    assert scene.fleet.ledger.total(Stage.QUEUED) == 0
    assert scene.fleet.ledger.longest_hold(2000.0) == 0
    scene.give_back(lease)
    assert scene.granted() is not None


# Giving up


async def test_who_leaves_the_queue_leaves_no_trace() -> None:
    scene = a_scene()
    lease = scene.granted()
    for number in range(3):
        await scene.queue(number)
    scene.waiting[1].cancel()
    await asyncio.wait([scene.waiting[1]])

    assert scene.fleet.ledger.queued == {"m1": 2}
    scene.give_back(lease)
    assert await scene.served() == [0]
    scene.give_back(scene.waiting[0].result())
    assert await scene.served() == [0, 2]


async def test_room_granted_to_somebody_who_has_just_left_goes_to_the_next() -> None:
    scene = a_scene()
    lease = scene.granted()
    await scene.queue(1)
    await scene.queue(2)

    # Cancelled, but not yet run again to leave, when the room comes free.
    scene.waiting[1].cancel()
    scene.give_back(lease)

    assert await scene.served() == [2]
    assert scene.fleet.ledger.total(Stage.QUEUED) == 0
    assert named(scene.fleet, "a").outstanding == 1


async def test_a_grant_to_somebody_who_then_leaves_goes_to_the_next() -> None:
    scene = a_scene()
    lease = scene.granted()
    await scene.queue(1)
    await scene.queue(2)

    # The room comes free first, and the one who gets it leaves before it has run again.
    scene.give_back(lease)
    scene.waiting[1].cancel()

    assert await scene.served() == [2]
    assert named(scene.fleet, "a").outstanding == 1


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("leaves_first", [True, False])
async def test_no_room_is_lost_whenever_somebody_leaves(turns: int, leaves_first: bool) -> None:
    scene = a_scene("a", "b", make_policy=LeastOutstanding)
    leases = [scene.granted(), scene.granted()]
    for number in range(3):
        await scene.queue(number)

    steps: list[Callable[[], object]] = [scene.waiting[0].cancel, lambda: scene.give_back(leases[0])]
    for step in steps if leaves_first else reversed(steps):
        step()
        for _ in range(turns):
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)

    holders = [one for one in scene.waiting.values() if one.done() and not one.cancelled()]
    for one in holders:
        scene.give_back(one.result())
    scene.give_back(leases[1])
    left = [one for one in scene.waiting.values() if not one.cancelled()]
    await asyncio.wait(left)
    for one in left:
        if one not in holders:
            scene.give_back(one.result())

    assert scene.fleet.ledger.total(Stage.QUEUED) == 0
    assert list(scene.fleet.ledger.cells) == [0] * len(scene.fleet.ledger.cells)


async def test_a_policy_hears_the_end_of_a_grant_that_was_given_back() -> None:
    policy = Stubborn()
    scene = a_scene(make_policy=lambda: policy)
    lease = scene.granted()
    await scene.queue(1)
    scene.give_back(lease)
    scene.waiting[1].cancel()
    await scene.served()

    sent = [told for told in policy.told if told.startswith("sent")]
    finished = [told for told in policy.told if told.startswith("finished")]
    assert len(sent) == len(finished) == 2


async def test_without_a_ready_replica_a_newcomer_does_not_join_those_who_wait() -> None:
    scene = a_scene()
    scene.granted()
    await scene.queue(1)
    scene.fleet.tell(named(scene.fleet, "a"), Event.FAILED, "gone")
    await scene.served()

    with pytest.raises(NoReplica):
        scene.grant()
    scene.waiting[1].cancel()
