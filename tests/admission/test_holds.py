"""Requests that a policy holds for one replica: in the queue, in nobody's way, and not for ever."""

import asyncio
import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.admission.grants import QueueRules
from replicarouter.admission.holds import LONGEST, SHORTEST, Holds
from replicarouter.admission.queue import Waiter
from replicarouter.commons.layout import AWAITED
from replicarouter.commons.memory import Commons
from replicarouter.errors import QueueTimeout
from replicarouter.exchange import Stage
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import View, Wait
from replicarouter.protocol.request import InferenceRequest
from tests.admission.conftest import MakeWaiter
from tests.admission.rig import Last, Patient, Scene, Stubborn, a_plan, a_scene
from tests.fakes.wire import eventually
from tests.properties import examples
from tests.scene import a_replica, a_request, an_exchange, named, replica_settings

LONG = 60.0


class Told(Stubborn):
    """Says what it was told to say, then chooses the first candidate. Writes down how long each waited."""

    def __init__(self, *answers: tuple[int, float] | None) -> None:
        super().__init__()
        self.answers = list(answers)
        self.waited: list[float] = []
        self.held: list[int] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        self.waited.append(view.waited)
        self.held.append(sum(view.held.values()))
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            return super().pick(request, view)
        return Wait(view.replicas[answer[0]], answer[1])


class Insistent(Stubborn):
    """Holds every request for the first replica as long as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []
        self.held: list[int] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        self.waited.append(view.waited)
        first = view.replicas[0]
        self.held.append(view.held.get(first, 0))
        if first not in view.candidates and view.waited < math.inf:
            return Wait(first, LONG)
        return super().pick(request, view)


def a_told_scene(*answers: tuple[int, float] | None, most: int = 1) -> tuple[Scene, Told]:
    """Replicas a and b; the policy holds requests for one of them by its number."""
    policy = Told(*answers)
    return a_scene("a", "b", most=most, make_policy=lambda: policy), policy


def over(_: Waiter) -> None:
    raise AssertionError


async def test_a_held_request_is_queued_and_counted() -> None:
    scene, policy = a_told_scene(None, (0, LONG))
    lease = scene.granted()
    await scene.ask(1)

    assert scene.exchanges[1].stage is Stage.QUEUED
    assert scene.fleet.ledger.queued == {"m1": 1}
    assert len(policy.waited) == 2
    scene.give_back(lease)
    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is lease.replica


async def test_the_policy_is_asked_once_and_again_when_there_is_a_reason() -> None:
    scene, policy = a_told_scene(None, None, (0, LONG), (0, LONG))
    first, second = scene.granted(), scene.granted()
    await scene.queue(1)
    scene.give_back(second)
    assert len(policy.waited) == 3
    for _ in range(5):
        scene.admission.room_at(second.replica)
    assert len(policy.waited) == 3

    scene.give_back(first)
    assert len(policy.waited) == 4
    assert await scene.served() == []
    scene.waiting[1].cancel()


async def test_who_is_held_holds_up_nobody() -> None:
    scene, _ = a_told_scene(None, (0, LONG), None, None, most=2)
    scene.granted()
    await scene.ask(1)

    assert scene.exchanges[1].stage is Stage.QUEUED
    for number in (2, 3):
        await scene.ask(number)
    assert await scene.served() == [2, 3]
    scene.waiting[1].cancel()


async def test_who_is_held_comes_before_others_at_its_replica() -> None:
    scene, _ = a_told_scene(None, None, (0, LONG))
    first, second = scene.granted(), scene.granted()
    for number in (1, 2, 3):
        await scene.queue(number)
    scene.give_back(second)
    assert await scene.served() == [2]

    scene.give_back(first)
    assert await scene.served() == [1, 2]
    assert scene.waiting[1].result().replica is first.replica
    scene.waiting[3].cancel()


async def test_after_its_seconds_it_takes_any_replica_and_the_policy_knows_how_long_it_waited() -> None:
    policy = Told(None, (0, 0.02))
    scene = a_scene("a", "b", make_policy=lambda: policy)
    scene.granted()
    await scene.ask(1)
    scene.clock.move(7.0)

    lease = await asyncio.wait_for(scene.waiting[1], 5)
    assert lease.replica is named(scene.fleet, "b")
    assert policy.waited == [0.0, 0.0, 7.0]


async def test_a_hold_of_no_time_does_not_spin() -> None:
    scene, policy = a_told_scene(None, *[(0, 0.0)] * 1000)
    scene.granted()
    await scene.ask(1)
    for _ in range(200):
        await asyncio.sleep(0)

    assert len(policy.waited) < 50
    scene.waiting[1].cancel()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e300])
async def test_a_senseless_time_is_bounded(a_waiter: MakeWaiter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends: list[float] = []
    holds = Holds(over)
    waiter = a_waiter()
    before = loop.time()
    holds.hold(waiter, Wait(a_replica(), seconds))
    ends.append(holds._held[waiter][1].when() - before)
    holds.drop(waiter)

    assert SHORTEST <= ends[0] <= LONGEST + 1
    assert len(holds) == len(holds.counts) == 0


async def test_whoever_is_held_anew_is_held_once(a_waiter: MakeWaiter) -> None:
    holds, waiter = Holds(over), a_waiter()
    first, second = a_replica("a"), a_replica("b")
    holds.hold(waiter, Wait(first, LONG))
    timer = holds._held[waiter][1]
    holds.hold(waiter, Wait(second, LONG))
    assert timer.cancelled()

    assert (len(holds), holds.counts, holds.of(first), holds.of(second)) == (1, {second: 1}, [], [waiter])
    assert holds.awaited_by(waiter) is second
    holds.drop(waiter)
    holds.drop(waiter)
    assert (len(holds), holds.counts, holds.awaited_by(waiter)) == (0, {}, None)


async def test_who_may_use_one_replica_alone_is_held_for_no_other() -> None:
    policy = Insistent()
    scene = a_scene("a", "b", make_policy=lambda: policy)
    scene.granted()
    owner = named(scene.fleet, "b")
    lease = scene.admission.grant(a_request(), scene.pool, an_exchange(model="m1"), [], owner)
    assert lease is not None
    assert lease.replica is owner

    work = scene.admission.wait(a_request(), scene.pool, an_exchange(model="m1"), [], owner)
    waiting = asyncio.ensure_future(work)
    await scene.served()
    assert (len(scene.admission._holds), len(scene.admission._queue.waiters)) == (0, 1)
    scene.give_back(lease)
    assert (await asyncio.wait_for(waiting, 5)).replica is owner
    assert policy.waited == [0.0, math.inf, math.inf]


async def test_who_was_refused_somewhere_is_not_held_for_another() -> None:
    policy = Insistent()
    scene = a_scene("a", "b", "c", make_policy=lambda: policy)
    scene.granted()
    refused = named(scene.fleet, "b")
    lease = scene.granted([refused])
    assert lease.replica is named(scene.fleet, "c")

    await scene.queue(1, [refused])
    scene.give_back(lease)
    assert await scene.served() == [1]
    assert policy.waited == [0.0, math.inf, math.inf]


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_are_held_for_a_replica_than_it_takes(most: int) -> None:
    policy = Insistent()
    scene = a_scene("a", "b", "c", most=most, make_policy=lambda: policy)
    first = [scene.granted() for _ in range(most)]
    for number in range(most + 2):
        await scene.ask(number)
    holder = first[0].replica
    assert scene.admission._holds.counts == {holder: most}
    assert await scene.served() == [most, most + 1]
    assert {scene.waiting[number].result().replica.name for number in (most, most + 1)} <= {"b", "c"}
    assert policy.held == [0] * most + [*range(most + 1), most, most, most]

    for lease in first:
        scene.give_back(lease)
    assert len(await scene.served()) == most + 2
    assert scene.admission._holds.counts == {}


async def test_whoever_is_asked_again_does_not_count_against_itself() -> None:
    """It is held for the only place that there is, and may keep it."""
    scene, policy = a_told_scene(None, None, (0, LONG), (0, LONG))
    first, second = scene.granted(), scene.granted()
    await scene.queue(1)
    scene.give_back(second)
    assert scene.admission._holds.counts == {first.replica: 1}
    scene.give_back(first)
    assert scene.admission._holds.counts == {first.replica: 1}
    assert policy.held == [0, 0, 0, 0]
    scene.waiting[1].cancel()


async def test_a_policy_that_insists_where_it_must_not_loses_no_room() -> None:
    scene = a_scene("a", "b", "c", make_policy=Patient)
    scene.granted()
    assert [scene.granted([scene.pool.replicas[0]]).replica.name for _ in range(2)] == ["b", "c"]


async def test_who_is_held_is_not_looked_at_when_others_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = a_scene("a", "b", most=50, make_policy=Insistent)
    for _ in range(50):
        scene.granted()
    for number in range(50):
        await scene.ask(number)
    assert len(scene.admission._holds) == 50
    looked: list[Waiter] = []
    may_use = Waiter.may_use

    def looking(waiter: Waiter, replica: Replica) -> bool:
        looked.append(waiter)
        return may_use(waiter, replica)

    monkeypatch.setattr(Waiter, "may_use", looking)
    scene.admission.room_at(named(scene.fleet, "b"))
    assert looked == []
    for waiting in scene.waiting.values():
        waiting.cancel()


GOING: dict[str, Callable[[Scene, Replica], object]] = {
    "ejected": lambda scene, one: scene.fleet.tell(one, Event.EJECTED, "fails"),
    "unhealthy": lambda scene, one: scene.fleet.tell(one, Event.FAILED, "gone"),
    "drained": lambda scene, one: scene.fleet.drain(one),
    "removed": lambda scene, one: scene.fleet.remove(one),
    "without the model": lambda scene, one: scene.fleet.list_models(one, [{"id": "m2"}]),
}


@pytest.mark.parametrize("way", GOING)
async def test_when_its_replica_goes_it_is_offered_to_others_at_once(way: str) -> None:
    scene, _ = a_told_scene(None, (0, LONG))
    lease = scene.granted()
    await scene.ask(1)
    GOING[way](scene, lease.replica)

    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is named(scene.fleet, "b")


async def test_nobody_is_held_until_its_deadline_is_over() -> None:
    policy = Insistent()
    scene = a_scene("a", "b", make_policy=lambda: policy, seconds=0.4)
    scene.granted()
    await scene.ask(1)
    scene.clock.move(0.2)

    lease = await asyncio.wait_for(scene.waiting[1], 5)
    assert lease.replica is named(scene.fleet, "b")
    assert policy.waited == [0.0, 0.0, math.inf]


@pytest.mark.parametrize("requests", [0, 1])
async def test_whom_the_queue_cannot_take_is_not_held(requests: int) -> None:
    scene = a_scene("a", "b", make_policy=Insistent, requests=requests)
    scene.granted()
    for number in range(requests):
        await scene.ask(number)
        assert scene.exchanges[number].stage is Stage.QUEUED
    assert scene.granted().replica is named(scene.fleet, "b")
    for waiting in scene.waiting.values():
        waiting.cancel()


async def test_the_deadline_of_the_queue_holds_for_who_is_held() -> None:
    scene = a_scene("a", "b", make_policy=Patient, seconds=0.05)
    scene.granted()
    await scene.ask(1)

    with pytest.raises(QueueTimeout):
        await asyncio.wait_for(scene.waiting[1], 5)
    assert scene.fleet.ledger.queued == {"m1": 0}
    assert not len(scene.admission._holds)


async def test_a_client_that_leaves_leaves_no_trace() -> None:
    scene, _ = a_told_scene(None, (0, LONG))
    lease = scene.granted()
    await scene.ask(1)
    scene.waiting[1].cancel()
    await asyncio.wait([scene.waiting[1]])

    assert scene.fleet.ledger.queued == {"m1": 0}
    assert not len(scene.admission._holds)
    scene.give_back(lease)
    assert list(scene.fleet.ledger.cells) == [0] * len(scene.fleet.ledger.cells)


async def test_another_policy_is_asked_about_who_is_held() -> None:
    scene = a_scene("a", "b", make_policy=Patient)
    scene.granted()
    await scene.ask(1)
    scene.admission.reconfigure(a_plan(Last, load_factor=2), QueueRules(100, 0.0))

    assert await scene.served() == [1]
    assert scene.waiting[1].result().replica is named(scene.fleet, "b")


ANSWERS = st.lists(st.none() | st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.005, 0.03])), max_size=30)
STEPS = st.lists(st.sampled_from(["come", "end", "leave", "eject", "return", "turn", "pause"]), max_size=40)


class Anything:
    """Three replicas with room for two each, and whatever happens to those who want it."""

    def __init__(self, answers: list[tuple[int, float] | None], most: int) -> None:
        self.policy = Told(*answers)
        self.scene = a_scene("a", "b", "c", most=most, make_policy=lambda: self.policy)
        self.random = Random(len(answers))
        self.given_back: set[int] = set()
        self.left: set[int] = set()

    async def do(self, step: str) -> None:
        scene, fleet = self.scene, self.scene.fleet
        some = self.random.choice(fleet.replicas)
        match step:
            case "come" if scene.pool.ready:
                await scene.ask(len(scene.waiting))
            case "end":
                await self.end_one()
            case "leave":
                waiting = [number for number, one in scene.waiting.items() if not one.done()]
                if waiting:
                    number = self.random.choice(waiting)
                    scene.waiting[number].cancel()
                    self.left.add(number)
            case "eject" if some in scene.pool.ready and len(scene.pool.ready) > 1:
                fleet.tell(some, Event.FAILED, "gone")
            case "return":
                fleet.tell(some, Event.PASSED, "back")
            case "pause":
                await asyncio.sleep(0.012)
            case _:
                await asyncio.sleep(0)

    async def end_one(self) -> None:
        for number in await self.scene.served():
            if number not in self.given_back:
                self.given_back.add(number)
                self.scene.give_back(self.scene.waiting[number].result())
                return

    async def end_all(self) -> None:
        for replica in self.scene.fleet:
            self.scene.fleet.tell(replica, Event.PASSED, "back")

        async def all_served() -> bool:
            await self.end_one()
            return self.given_back | self.left >= self.scene.waiting.keys()

        await eventually(all_served, "everybody is served")


@examples(80)
@given(answers=ANSWERS, steps=STEPS, most=st.sampled_from([0, 1, 2]))
def test_whatever_a_policy_says_no_room_and_no_request_is_lost(
    answers: list[tuple[int, float] | None], steps: list[str], most: int
) -> None:
    async def play() -> None:
        anything = Anything(answers, most)
        for step in steps:
            await anything.do(step)
        await anything.end_all()
        scene = anything.scene
        for number in anything.left - anything.given_back:
            await asyncio.wait([scene.waiting[number]])
            assert scene.waiting[number].cancelled()
        ledger = scene.fleet.ledger
        assert (ledger.total(Stage.QUEUED), ledger.longest_hold(5000.0)) == (0, 0)
        assert not len(scene.admission._holds)
        assert list(ledger.cells) == [0] * len(ledger.cells)

    asyncio.run(play())


def test_those_held_at_other_workers_count() -> None:
    commons = Commons(2)
    ledger, other = WorkerLedger(commons.seat(0)), commons.seat(1)
    replica = Replica.join(replica_settings(), ledger, 2, commons.add_row())
    holds = Holds(lambda _: None, ledger.seat)
    assert (dict(holds.counts), holds.counts.get(replica, 0), holds.has_place(replica)) == ({}, 0, True)
    other.await_one(replica.row, 2)

    assert (holds.counts.get(replica, 0), holds.has_place(replica)) == (2, False)
    commons.close()


async def test_who_is_held_here_is_counted_for_all(a_waiter: MakeWaiter) -> None:
    commons = Commons(2)
    ledger = WorkerLedger(commons.seat(0))
    replica = Replica.join(replica_settings(), ledger, 2, commons.add_row())
    holds, waiter = Holds(lambda _: None, ledger.seat), a_waiter()
    holds.hold(waiter, Wait(replica, 60.0))
    holds.hold(waiter, Wait(replica, 60.0))
    assert (commons.totals[replica.row + AWAITED], dict(holds.counts)) == (1, {replica: 1})
    holds.drop(waiter)

    assert (commons.totals[replica.row + AWAITED], len(holds.counts)) == (0, 0)
    commons.close()
