"""Several workers in place of one: each hears late what the others know."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Forgetful, Remembered, View
from replicarouter.policies.news import ENDED, Item
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.campaign import Campaign, Router, Source, run
from replicarouter.replay.figures import Slo
from replicarouter.replay.fleet import ReplayFleet
from replicarouter.replay.timed import TimedOptions
from replicarouter.replay.trace import TraceOptions
from replicarouter.replay.workers import Workers
from replicarouter.replay.workloads.base import WorkloadOptions
from replicarouter.settings import PolicyOptions
from tests.replay.scene import ask

NEVER = 1e9


class Talking(Forgetful):
    """Tells of each request that it sends, and writes down what happens."""

    learns = True

    def __init__(self) -> None:
        self.told: list[str] = []
        self.heard: list[tuple[float, int, Sequence[Item]]] = []
        self.ahead = -1
        self._sent: list[Item] = []

    def share(self, ahead: int, *, obeyed: bool = True) -> None:
        self.ahead = ahead

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        self.told.append("pick")
        return view.candidates[0]

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append("sent")
        self._sent.append((ENDED, len(self.told)))

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append("began")

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        self.told.append("finished")

    def news(self) -> Sequence[Item]:
        news, self._sent = self._sent, []
        return news

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:
        assert set(members) == {"replica-0000", "replica-0001", "replica-0002", "replica-0003"}
        self.heard.append((now, worker, news))

    def remembered(self) -> Remembered:
        return Remembered(len(self.told), 10)


class Scene:
    def __init__(self, delay: float = 0.02, workers: int = 3) -> None:
        self.fleet = ReplayFleet(4)
        self.policies = [Talking() for _ in range(workers)]
        self.workers = Workers(self.policies, 4, delay, Random(5))

    def serve(self, now: float) -> None:
        """One request from its beginning to its end, all at one moment."""
        request = ask(1, 2)
        chosen = self.workers.pick(request, View(self.fleet.replicas, self.fleet.replicas, now, Random(7)))
        assert isinstance(chosen, Replica)
        self.workers.sent(request, chosen, now)
        self.workers.began(request, chosen, now)
        self.workers.finished(request, chosen, Ending("ok"), now)


def test_a_request_has_one_worker_from_its_beginning_to_its_end() -> None:
    scene = Scene()
    for number in range(90):
        scene.serve(float(number))
    whole = ["pick", "sent", "began", "finished"]
    assert all(policy.told == whole * (len(policy.told) // 4) for policy in scene.policies)
    assert all(60 < len(policy.told) < 180 for policy in scene.policies)
    assert not scene.workers._dealt


def test_the_others_hear_it_once_the_delay_has_passed() -> None:
    scene = Scene()
    for number in range(200):
        scene.serve(number * 0.01)
    counts = [len(policy.told) // 4 for policy in scene.policies]
    for number, policy in enumerate(scene.policies):
        assert {sender for _, sender, _ in policy.heard} == {0, 1, 2} - {number}
        assert sum(counts) - counts[number] - 2 <= len(policy.heard) <= sum(counts) - counts[number]
        assert all(now >= 0.02 for now, _, _ in policy.heard)


def test_nobody_hears_what_comes_too_late() -> None:
    scene = Scene(NEVER)
    for number in range(50):
        scene.serve(float(number))
    assert not any(policy.heard for policy in scene.policies)


def test_turns_are_shared_out_and_memories_added_up() -> None:
    scene = Scene(workers=2)
    scene.serve(1.0)
    assert [policy.ahead for policy in scene.policies] == [0, 2]
    assert scene.workers.remembered() == (4, 20, 0, 0)


@pytest.mark.parametrize("policy", ["session", "prefix-cache"])
def test_with_news_several_workers_find_nearly_what_one_finds(policy: str) -> None:
    source = Source(None, "chat", TraceOptions(), WorkloadOptions(requests=1500, replicas=8))
    one = Campaign(source, TimedOptions(replicas=8), (policy,), (1.0,), 1, PolicyOptions(), Slo())
    known, late, never = (
        next(run(replace(one, router=router))).figures.hit_ratio
        for router in (Router(), Router(4), Router(4, NEVER))
    )
    assert late > known - 0.03
    if policy == "prefix-cache":
        assert never < known - 0.1
