"""Grants: at once or in order, one policy a pool, and nothing lost when somebody gives up."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import pytest

from replicarouter.admission.grants import QueueRules
from replicarouter.admission.lease import Lease
from replicarouter.admission.plan import PolicyPlan
from replicarouter.errors import NoReplica, QueueFull, QueueTimeout
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import ROW
from replicarouter.fleet.lifecycle import Event
from replicarouter.policies.base import Policy
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.settings import AdmissionSettings
from tests.admission.rig import Last, Patient, Scene, Stubborn, a_plan, a_scene, admission_for
from tests.scene import HandClock, a_fleet, a_request, an_exchange, named, replica_settings

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
    assert list(scene.fleet.ledger.cells) == [0] * ROW


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


async def test_a_replica_that_takes_on_a_model_serves_those_who_wait_for_it() -> None:
    scene = a_scene("a", "b")
    other = named(scene.fleet, "b")
    scene.fleet.list_models(other, [{"id": "m2"}])
    scene.granted()
    await scene.queue(1)
    scene.fleet.list_models(other, [{"id": "m2"}, {"id": "m1"}])

    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is other


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


@dataclass
class Storm:
    """Two full replicas, waiters of several callers, and everything that may happen in one turn."""

    scene: Scene
    leases: list[Lease]

    @classmethod
    async def begin(cls, waiters: int, **rules: Any) -> "Storm":
        scene = a_scene("a", "b", make_policy=LeastOutstanding, **rules)
        leases = [scene.granted(caller="x"), scene.granted(caller="y")]
        for number in range(waiters):
            await scene.queue(number, caller="xyz"[number % 3], priority=number % 2)
        return cls(scene, leases)

    def rooms(self) -> None:
        for replica in self.scene.fleet:
            self.scene.admission.room_at(replica)

    async def end(self) -> set[int]:
        """Let everything come to rest, giving back whatever is granted; who was served."""
        served: set[int] = set()
        for lease in self.leases:
            self.scene.give_back(lease)
        while not all(one.done() for one in self.scene.waiting.values()) or len(served) < self.granted:
            self.rooms()
            await asyncio.sleep(0)
            for number, one in self.scene.waiting.items():
                if number not in served and one.done() and not one.cancelled() and not one.exception():
                    served.add(number)
                    self.scene.give_back(one.result())
        ledger = self.scene.fleet.ledger
        assert ledger.total(Stage.QUEUED) == 0
        assert ledger.longest_hold(5000.0) == 0
        assert list(ledger.cells) == [0] * len(ledger.cells)
        assert not self.scene.admission._queue.waiters
        # Whoever comes now meets an empty queue and free replicas, whatever its caller had before.
        for caller in "xyz":
            self.scene.give_back(self.scene.granted(caller=caller))
        return served

    @property
    def granted(self) -> int:
        done = (one for one in self.scene.waiting.values() if one.done() and not one.cancelled())
        return sum(one.exception() is None for one in done)


TURNS = range(7)
"""More turns of the loop than lie between any two of the steps of a wait."""


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("storm", [False, True])
@pytest.mark.parametrize("leaves_first", [True, False])
@pytest.mark.parametrize("leaver", [0, 1, 4])
async def test_no_room_is_lost_whenever_somebody_leaves(
    turns: int, storm: bool, leaves_first: bool, leaver: int
) -> None:
    scenery = await Storm.begin(5)
    scene = scenery.scene
    lease = scenery.leases.pop()
    steps: list[Callable[[], object]] = [scene.waiting[leaver].cancel, lambda: scene.give_back(lease)]
    for step in steps if leaves_first else reversed(steps):
        step()
        for _ in range(turns):
            if storm:
                scenery.rooms()
            await asyncio.sleep(0)

    assert await scenery.end() >= set(range(5)) - {leaver}


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("leavers", [(0, 1, 2), (4, 3), (1, 3)])
async def test_no_room_is_lost_when_several_leave_at_once(turns: int, leavers: tuple[int, ...]) -> None:
    scenery = await Storm.begin(6)
    scene = scenery.scene
    while scenery.leases:
        scene.give_back(scenery.leases.pop())
    for _ in range(turns):
        scenery.rooms()
        await asyncio.sleep(0)
    for leaver in leavers:
        scene.waiting[leaver].cancel()
        scenery.rooms()

    assert await scenery.end() >= set(range(6)) - set(leavers)


@pytest.mark.parametrize("turns", list(product(range(3), repeat=2)))
@pytest.mark.parametrize("order", list(permutations(("shed", "leave", "grant"))))
async def test_nothing_is_lost_whenever_somebody_is_shed(
    order: tuple[str, ...], turns: tuple[int, int]
) -> None:
    scenery = await Storm.begin(0, requests=3)
    scene = scenery.scene
    for number in range(3):
        await scene.queue(number, caller="flood")
    left = False

    def leave() -> None:
        nonlocal left
        left = scene.waiting[2].cancel()

    def shed() -> None:
        scene.exchanges[3] = an_exchange(caller="other")
        come = scene.admission.wait(a_request(), scene.pool, scene.exchanges[3], [])
        scene.waiting[3] = asyncio.ensure_future(come)

    lease = scenery.leases.pop()
    steps: dict[str, Callable[[], None]] = {
        "shed": shed,
        "leave": leave,
        "grant": lambda: scene.give_back(lease),
    }
    for step, pause in zip(order, (*turns, 0), strict=True):
        steps[step]()
        for _ in range(pause):
            await asyncio.sleep(0)

    assert await scenery.end() >= {0, 1, 3}
    assert scene.waiting[2].cancelled() == left


@pytest.mark.parametrize("room_after", [0.05, 0.35])
async def test_nothing_is_lost_when_the_time_is_over_as_room_comes(room_after: float) -> None:
    scenery = await Storm.begin(4, seconds=0.3)
    lease = scenery.leases.pop()
    given_back = asyncio.Event()

    def room() -> None:
        scenery.scene.give_back(lease)
        given_back.set()

    asyncio.get_running_loop().call_later(room_after, room)
    time.sleep(0.4)  # noqa: ASYNC251 - all are due now, and happen in one turn of the loop
    await given_back.wait()

    await scenery.end()


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


# Between callers


async def test_a_flood_does_not_keep_another_caller_waiting() -> None:
    scene = a_scene("a", "b", most=2)
    leases = [scene.granted(caller="flood") for _ in range(4)]
    for number in range(50):
        await scene.queue(number, caller="flood")
    await scene.queue(50, caller="other")
    scene.give_back(leases[0])

    assert await scene.served() == [50]
    for lease in leases[1:]:
        scene.give_back(lease)
    assert await scene.served() == [0, 1, 2, 50]
    for waiting in scene.waiting.values():
        waiting.cancel()


async def test_who_has_all_the_room_comes_after_who_has_none() -> None:
    """Though its room was granted before anybody waited, and its request waits longer."""
    scene = a_scene(most=2)
    lease, _ = scene.granted(caller="first"), scene.granted(caller="first")
    await scene.queue(1, caller="first")
    await scene.queue(2, caller="second")
    scene.give_back(lease)

    assert await scene.served() == [2]
    scene.waiting[1].cancel()


async def test_what_a_caller_gives_back_counts_for_it_no_more() -> None:
    scene = a_scene(most=2)
    leases = [scene.granted(caller="one"), scene.granted(caller="other")]
    await scene.queue(1, caller="other")
    await scene.queue(2, caller="one")
    scene.give_back(leases[0])

    assert await scene.served() == [2]
    scene.waiting[1].cancel()


async def test_shares_set_the_turns() -> None:
    scene = a_scene(shares={"gold": 2.0})
    lease = scene.granted(caller="z")
    for number in range(6):
        await scene.queue(number, caller="gold")
        await scene.queue(number + 10, caller="plain")

    assert (await scene.serve_all(lease)).split()[:6].count("gold") == 4


async def test_pools_that_share_a_replica_share_its_turns() -> None:
    fleet = a_fleet("a", models=("m1", "m2"), most=1)
    admission = admission_for(fleet)
    one, other = (Scene(fleet, admission, fleet.pool_for(model)) for model in ("m1", "m2"))
    lease = one.granted(caller="flood")
    for number in range(3):
        await one.queue(number, caller="flood")
        await other.queue(number, caller="flood")
    await other.queue(9, caller="small")
    one.give_back(lease)

    assert (await one.served(), await other.served()) == ([], [9])
    other.give_back(other.waiting[9].result())
    assert (await one.served(), await other.served()) == ([0], [9])
    one.give_back(one.waiting[0].result())
    assert (await one.served(), await other.served()) == ([0], [0, 9])
    for waiting in (*one.waiting.values(), *other.waiting.values()):
        waiting.cancel()


async def test_what_a_caller_gets_elsewhere_meanwhile_counts_too() -> None:
    fleet = a_fleet(replica_settings("a", models=["m1"]), replica_settings("b", models=["m1", "m2"]), most=1)
    admission = admission_for(fleet)
    one, other = (Scene(fleet, admission, fleet.pool_for(model)) for model in ("m1", "m2"))
    lease = other.granted(caller="z")
    await other.queue(1, caller="x")
    await other.queue(2, caller="y")
    assert one.granted(caller="x").replica.name == "a"
    other.give_back(lease)

    assert await other.served() == [2]
    other.waiting[1].cancel()


async def test_pools_that_share_nothing_do_not_weigh_on_each_other() -> None:
    fleet = a_fleet(replica_settings("a", models=["m1"]), replica_settings("b", models=["m2"]), most=2)
    admission = admission_for(fleet)
    one, other = (Scene(fleet, admission, fleet.pool_for(model)) for model in ("m1", "m2"))
    one.granted(caller="x")
    one.granted(caller="x")
    lease, _ = other.granted(caller="x"), other.granted(caller="y")
    await other.queue(1, caller="x")
    await other.queue(2, caller="y")
    other.give_back(lease)

    assert await other.served() == [1]
    other.waiting[2].cancel()


async def test_the_urgent_go_first() -> None:
    scene = a_scene()
    lease = scene.granted(caller="z")
    for number, (caller, priority) in enumerate([("a", 2), ("b", 1), ("c", 0), ("d", 1)]):
        await scene.queue(number, caller=caller, priority=priority)

    assert await scene.serve_all(lease) == "c b d a"


# A full queue


async def test_who_has_to_make_room_counts_as_queued_until_it_says_so_to_its_client() -> None:
    """Else it would be nowhere for a turn of the loop, while it is still in flight."""
    scene = a_scene(requests=2)
    scene.granted(caller="flood")
    for number in range(2):
        await scene.queue(number, caller="flood")
    come = scene.admission.wait(a_request(), scene.pool, an_exchange(caller="other"), [])
    newcomer = asyncio.ensure_future(come)
    counted = []
    for _ in range(2):
        await asyncio.sleep(0)
        counted.append(scene.fleet.ledger.queued["m1"])

    assert counted == [3, 2]
    assert isinstance(scene.waiting[1].exception(), QueueFull)
    newcomer.cancel()


async def test_a_flood_that_fills_the_queue_makes_room_for_another_caller() -> None:
    scene = a_scene(requests=3)
    lease = scene.granted(caller="flood")
    for number in range(3):
        await scene.queue(number, caller="flood")
    await scene.queue(9, caller="other")

    with pytest.raises(QueueFull) as shed:
        await scene.waiting[2]
    assert shed.value.retry_after
    assert scene.fleet.ledger.queued == {"m1": 3}
    del scene.waiting[2]
    assert await scene.serve_all(lease) == "other flood flood"


async def test_a_flood_makes_no_room_for_itself() -> None:
    scene = a_scene(requests=2)
    scene.granted(caller="flood")
    for number in range(2):
        await scene.queue(number, caller="flood")

    with pytest.raises(QueueFull, match="full with 2 requests"):
        await scene.admission.wait(a_request(), scene.pool, an_exchange(caller="flood"), [])
    assert await scene.served() == []
    for waiting in scene.waiting.values():
        waiting.cancel()


# Which replicas


@pytest.mark.parametrize("most", [0, 5])
async def test_a_replica_that_is_cooling_off_is_no_candidate_beside_others(most: int) -> None:
    policy = Stubborn()
    scene = a_scene("a", "b", "c", most=most, make_policy=lambda: policy)
    busy = scene.granted()
    busy.replica.cool_until = 1001.0
    scene.give_back(busy)

    assert scene.granted().replica.name == "b"
    assert policy.seen == [["a", "b", "c"], ["b", "c"]]


async def test_when_all_are_cooling_off_none_is_left_out() -> None:
    scene = a_scene("a", "b", most=0)
    for lease in [scene.granted(), scene.granted([named(scene.fleet, "a")])]:
        lease.replica.cool_until = 1001.0
        scene.give_back(lease)

    assert scene.granted().replica.name == "a"


async def test_a_replica_that_has_cooled_off_is_a_candidate_again() -> None:
    fleet, clock = a_fleet("a", "b"), HandClock()
    scene = Scene(fleet, admission_for(fleet, clock=clock), fleet.pool_for("m1"))
    lease = scene.granted()
    lease.replica.cool_until = clock() + 1.0
    scene.give_back(lease)
    assert scene.granted().replica.name == "b"

    clock.move(1.0)
    assert scene.granted().replica.name == "a"


async def test_a_replica_that_is_not_ready_gets_nobody_who_waits() -> None:
    scene = a_scene()
    lease = scene.granted()
    await scene.queue(1)
    scene.fleet.drain(lease.replica)
    scene.give_back(lease)
    assert await scene.served() == []

    scene.fleet.undrain(lease.replica)
    assert await scene.served() == [1]


async def test_a_removed_replica_leaves_with_its_last_request_and_is_forgotten() -> None:
    policy = Stubborn()
    scene = a_scene("a", "b", most=0, make_policy=lambda: policy)
    leases = [scene.granted(), scene.granted()]
    replica = leases[0].replica
    assert not scene.fleet.remove(replica)
    scene.give_back(leases[0])
    assert replica in scene.fleet

    scene.give_back(leases[1])
    assert replica not in scene.fleet
    assert policy.told[-1] == "removed a"
    assert scene.granted().replica.name == "b"


async def test_the_last_byte_of_an_attempt_is_remembered_of_its_replica() -> None:
    scene = a_scene(most=0)
    leases = [scene.granted(), scene.granted(), scene.granted()]
    for lease, at in zip(leases, (50.0, 70.0, 60.0), strict=True):
        lease.exchange.last_byte_at = at
        scene.give_back(lease)

    assert named(scene.fleet, "a").heard_at == 70.0


# Other settings while running


async def test_more_room_is_handed_out_at_once() -> None:
    scene = a_scene()
    scene.granted()
    for number in range(3):
        await scene.queue(number)
    named(scene.fleet, "a").most = 3
    scene.admission.reconfigure(a_plan(), QueueRules(100, 0.0))

    assert await scene.served() == [0, 1]
    scene.waiting[2].cancel()


async def test_those_who_wait_keep_their_places_under_other_shares() -> None:
    scene = a_scene()
    lease = scene.granted(caller="z")
    for number in range(6):
        await scene.queue(number, caller="gold")
        await scene.queue(number + 10, caller="plain")
    scene.admission.reconfigure(a_plan(), QueueRules(100, 0.0, {"gold": 2.0}))

    assert scene.fleet.ledger.queued == {"m1": 12}
    assert (await scene.serve_all(lease)).split()[:6].count("gold") == 4
    assert [number for number in scene.waiting if number < 10] == list(range(6))


async def test_a_smaller_queue_refuses_newcomers_and_sheds_nobody() -> None:
    scene = a_scene()
    scene.granted()
    for number in range(3):
        await scene.queue(number)
    scene.admission.reconfigure(a_plan(), QueueRules(1, 0.0))

    with pytest.raises(QueueFull):
        await scene.admission.wait(a_request(), scene.pool, an_exchange(), [])
    assert await scene.served() == []
    for waiting in scene.waiting.values():
        waiting.cancel()


async def test_another_policy_takes_over_and_the_same_one_goes_on() -> None:
    made: list[Stubborn] = []

    class First(Stubborn):
        def __init__(self) -> None:
            made.append(self)
            super().__init__()

    table: dict[str, type[Policy]] = {"first": First, "last": Last}
    scene = a_scene("a", "b", most=0, make_policy=PolicyPlan("first", table=table))
    lease = scene.granted()
    scene.admission.reconfigure(PolicyPlan("first", table=table), QueueRules(100, 0.0))
    assert len(made) == 1

    scene.admission.reconfigure(PolicyPlan("last", table=table), QueueRules(100, 0.0))
    scene.give_back(lease)
    assert scene.granted().replica.name == "b"
    assert made[0].told == ["sent a"]


def test_the_rules_are_those_of_the_settings() -> None:
    settings = AdmissionSettings(max_queued=5, queue_timeout=3, shares={"a": 2})

    assert QueueRules.of(settings) == QueueRules(5, 3.0, {"a": 2.0})
