"""What a shadow says is counted and learned, and changes nothing."""

from random import Random

import pytest

from replicarouter.admission.shadow import Shadow
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, View, Wait
from replicarouter.policies.random_choice import RandomChoice
from replicarouter.protocol.request import InferenceRequest
from replicarouter.telemetry.metrics import Metrics
from tests.admission.rig import Last, Stubborn, a_plan, a_scene, desks_for
from tests.scene import a_fleet, a_request, an_exchange


class Finder(Last):
    """Finds 300 characters at the last candidate."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        request.affinity, request.found = "hit", 300
        return super().pick(request, view)


class Waiting(Finder):
    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        super().pick(request, view)
        return Wait(view.replicas[1], 2.0)


class Alone:
    """A shadow, and what it is asked about."""

    def __init__(self, policy: Stubborn) -> None:
        self.replicas = a_fleet("a", "b").replicas
        self.metrics = Metrics()
        self.policy = policy
        self.shadow = Shadow("prefix-cache", policy, self.metrics)
        self.request = a_request()
        self.request.characters, self.request.affinity, self.request.found = 1000, "new", 7
        self.view = View(self.replicas, self.replicas, 5.0, Random(3))


def test_what_it_says_is_counted_beside_what_is_done() -> None:
    alone = Alone(Finder())
    advice = alone.shadow.ask(alone.request, alone.view, alone.replicas[0])

    assert (advice.replica.name, advice.affinity, advice.found, advice.waits) == ("b", "hit", 300, 0.0)
    metrics = alone.metrics
    assert dict(metrics.shadow) == {("prefix-cache", "hit"): 1}
    assert dict(metrics.shadow_choices) == {("prefix-cache", "other"): 1}
    assert dict(metrics.shadow_cached_characters) == {("prefix-cache",): 300}
    assert dict(metrics.routed_characters) == {("prefix-cache", "b"): 1000}
    assert dict(metrics.cached_characters) == dict(metrics.affinity) == {}


def test_the_same_choice_is_told_from_another() -> None:
    alone = Alone(Finder())
    alone.shadow.ask(alone.request, alone.view, alone.replicas[1])
    assert dict(alone.metrics.shadow_choices) == {("prefix-cache", "same"): 1}


def test_whom_it_would_wait_for_counts_as_its_choice() -> None:
    alone = Alone(Waiting())
    advice = alone.shadow.ask(alone.request, alone.view, alone.replicas[0])

    assert (advice.replica.name, advice.waits) == ("b", 2.0)
    assert dict(alone.metrics.routed_characters) == {("prefix-cache", "b"): 1000}


def test_a_request_is_left_as_the_real_policy_left_it() -> None:
    alone = Alone(Finder())
    alone.shadow.ask(alone.request, alone.view, alone.replicas[0])
    assert (alone.request.affinity, alone.request.found) == ("new", 7)


def test_it_does_not_draw_from_the_chance_of_the_real_policy() -> None:
    alone = Alone(Stubborn())
    shadow = Shadow("random", RandomChoice(), alone.metrics)
    for _ in range(5):
        shadow.ask(alone.request, alone.view, alone.replicas[0])
    assert alone.view.random.random() == Random(3).random()


@pytest.mark.parametrize(("real", "cached"), [(0, None), (1, 40)])
def test_it_learns_from_its_own_choice(real: int, cached: int | None) -> None:
    alone = Alone(Finder())
    shadow, exchange = alone.shadow, an_exchange()
    chosen = alone.replicas[real]
    shadow.sent(alone.request, exchange, shadow.ask(alone.request, alone.view, chosen), chosen, 5.0)
    shadow.began(exchange, 6.0)
    for _ in range(2):
        shadow.finished(exchange, Ending("ok", 100, 40, 3), 7.0)

    assert alone.policy.told == ["sent b", "began b 6", "finished b ok"]
    assert alone.policy.endings == [Ending("ok", 100, cached, 3)]


def test_what_it_was_not_asked_about_does_not_end_for_it() -> None:
    alone = Alone(Finder())
    alone.shadow.began(an_exchange(), 6.0)
    alone.shadow.finished(an_exchange(), Ending("ok"), 7.0)
    assert alone.policy.told == []


async def test_with_a_shadow_requests_go_where_they_went_without() -> None:
    shadow = Finder()
    plain = a_scene("a", "b", most=0)
    shadowed = a_scene("a", "b", most=0, make_policy=desks_for(a_plan(shadow=lambda: shadow)))
    for scene in (plain, shadowed):
        leases = [scene.granted() for _ in range(4)]
        assert [lease.replica.name for lease in leases] == ["a"] * 4
        assert {lease.exchange.affinity for lease in leases} == {"none"}
        for lease in leases:
            scene.give_back(lease)
    assert shadow.told == ["sent b"] * 4 + ["finished b ok"] * 4


async def test_a_shadow_forgets_a_replica_that_has_left() -> None:
    shadow = Finder()
    scene = a_scene("a", "b", most=0, make_policy=desks_for(a_plan(shadow=lambda: shadow)))
    scene.give_back(scene.granted())
    scene.fleet.remove(scene.pool.replicas[1])
    assert shadow.told[-1] == "removed b"
