"""Admission in virtual time."""

from collections.abc import Callable
from random import Random

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, Policy, View, Wait
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.fleet import ReplayFleet
from replicarouter.replay.gate import Gate, GateRules
from replicarouter.replay.job import Job
from tests.replay.scene import BLOCK, turn


class By(Forgetful):
    """Chooses as a function of the request's first block and the view."""

    def __init__(self, choose: Callable[[int, View], Replica | Wait]) -> None:
        self.choose = choose
        self.waited: list[float] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        self.waited.append(view.waited)
        return self.choose(request.blocks[0], view)


class Scene:
    def __init__(self, rules: GateRules, policy: Policy | None = None, replicas: int = 2) -> None:
        self.fleet = ReplayFleet(replicas, rules.most)
        self.reminders: list[tuple[float, Job]] = []
        policy = policy or LeastOutstanding()
        self.gate = Gate(
            rules, self.fleet, policy, Random(1), lambda moment, job: self.reminders.append((moment, job))
        )

    def come(self, block: int, now: float = 0.0) -> Job:
        job = Job(turn(block), iter(()), BLOCK, now)
        if self.gate.admit(job, now):
            assert job.replica is not None
            self.fleet.take(job.replica)
        return job

    def end(self, replica: Replica, now: float) -> list[Job]:
        """One request of a replica ends; those that go now."""
        self.fleet.stream(replica)
        self.fleet.release(replica)
        gone = []
        while (job := self.gate.next_for(replica, now)) is not None:
            assert job.replica is not None
            self.fleet.take(job.replica)
            gone.append(job)
        return gone


def test_everyone_goes_at_once_without_a_limit() -> None:
    scene = Scene(GateRules())
    assert all(scene.come(number).replica is not None for number in range(100))
    assert scene.gate.waiting == 0


def test_the_first_to_come_is_the_first_to_go() -> None:
    scene = Scene(GateRules(most=1, seconds=0.0))
    first, _, third, fourth = (scene.come(number, float(number)) for number in range(4))
    assert first.replica is not None
    assert third.replica is fourth.replica is None
    assert scene.end(first.replica, 9.0) == [third]
    assert third.replica is first.replica
    assert scene.gate.waiting == 1
    assert third.line is None
    assert fourth.line is not None


def test_no_newcomer_overtakes_the_queue() -> None:
    scene = Scene(GateRules(most=1), replicas=1)
    first, second = scene.come(1), scene.come(2)
    assert first.replica is not None
    scene.fleet.stream(first.replica)
    scene.fleet.release(first.replica)
    third = scene.come(3)
    assert third.replica is None
    assert scene.gate.next_for(first.replica, 1.0) is second


def test_a_full_queue_refuses() -> None:
    scene = Scene(GateRules(most=1, queued=1), replicas=1)
    _, waiting, refused = (scene.come(number) for number in range(3))
    assert waiting.line is not None
    assert refused.line is None
    assert refused.replica is None


def test_who_waits_too_long_is_refused() -> None:
    scene = Scene(GateRules(most=1, seconds=5.0), replicas=1)
    scene.come(1)
    job = scene.come(2, 1.0)
    assert scene.reminders == [(6.0, job)]
    assert not scene.gate.remind(job, 6.0)
    assert job.line is None
    assert scene.gate.waiting == 0


def patient(block: int, view: View) -> Replica | Wait:
    """Odd requests want the first replica, and wait for it; the others take whoever has room."""
    wanted = view.replicas[0]
    if block % 2 and wanted not in view.candidates:
        return Wait(wanted, 3.0) if view.waited < 6 else view.candidates[0]
    return view.candidates[0] if not block % 2 else wanted


def full_first(policy: By) -> tuple[Scene, Job]:
    scene = Scene(GateRules(most=1, seconds=60.0), policy)
    holder = scene.come(1)
    assert holder.replica is scene.fleet.replicas[0]
    return scene, holder


def test_who_waits_for_one_replica_holds_up_nobody_and_goes_when_it_has_room() -> None:
    scene, holder = full_first(By(patient))
    waiting = scene.come(3)
    assert waiting.line is not None
    other = scene.come(2)
    assert other.replica is scene.fleet.replicas[1]
    assert scene.end(scene.fleet.replicas[1], 1.0) == []
    assert holder.replica is not None
    assert scene.end(holder.replica, 2.0) == [waiting]
    assert waiting.replica is holder.replica
    assert scene.gate.waiting == 0


def test_after_its_seconds_the_policy_is_asked_again_and_told_of_the_wait() -> None:
    policy = By(patient)
    scene, _ = full_first(policy)
    waiting = scene.come(3)
    moments = sorted(moment for moment, job in scene.reminders if job is waiting)
    assert moments == [3.0, 60.0]
    assert not scene.gate.remind(waiting, 3.0)
    assert policy.waited[-1] == 3.0
    assert waiting.line is not None
    assert scene.gate.remind(waiting, 6.0)
    assert waiting.replica is scene.fleet.replicas[1]
    assert waiting.line is None


def test_who_was_held_comes_first_once_all_are_full() -> None:
    scene, holder = full_first(By(patient))
    waiting = scene.come(3)
    scene.come(2)
    late = scene.come(4, 1.0)
    assert late.line is not None
    assert not scene.gate.remind(waiting, 3.0)
    assert not scene.gate.remind(waiting, 3.5)
    assert holder.replica is not None
    assert scene.end(scene.fleet.replicas[1], 6.5) == [waiting]


def test_who_is_held_for_a_replica_goes_before_those_who_came_later() -> None:
    scene, holder = full_first(By(patient))
    held = scene.come(3)
    scene.come(2)
    queued = scene.come(4, 1.0)
    assert holder.replica is not None
    assert scene.end(holder.replica, 2.0) == [held]
    assert queued.line is not None
