"""What belongs to one pool, and what becomes of it under other settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from replicarouter.admission.decisions import Decisions
from replicarouter.admission.desk import Desks
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.plan import PolicyPlan
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, Remembered, View, Wait
from replicarouter.policies.news import ENDED, Item
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.settings import PolicyOptions
from replicarouter.telemetry.metrics import Metrics
from tests.admission.rig import Last, Scene, Stubborn, a_plan, a_scene, admission_for, desks_for
from tests.scene import a_fleet, an_exchange


class Keyed(Stubborn):
    """Needs the session, and says that it was a hit with 50 of 80 characters."""

    needs = Needs.SESSION

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        request.affinity, request.found, request.characters = "hit", 50, 80
        return super().pick(request, view)


class Blocks(Last):
    needs = Needs.BLOCKS
    options = frozenset({"prefix_index_bytes"})

    def remembered(self) -> Remembered:
        return Remembered(3, 20, 1, 4)


class Unlearned(Stubborn):
    learns = False

    def remembered(self) -> Remembered:
        return Remembered(10, 50, 5)


TABLE: dict[str, type[Policy]] = {
    "session": Keyed,
    "prefix-cache": Blocks,
    "random": Stubborn,
    "round-robin": Unlearned,
}


def plan(default: str = "random", by_model: dict[str, str] | None = None, **options: Any) -> PolicyPlan:
    return PolicyPlan(default, by_model or {}, PolicyOptions(**options), TABLE)


class TwoPools:
    """Replica a, which serves m1 and m2."""

    def __init__(self, plan: PolicyPlan) -> None:
        self.fleet = a_fleet("a", models=("m1", "m2"))
        self.metrics = Metrics()
        self.desks = Desks(plan, self.metrics, Decisions(0))
        self.admission = admission_for(self.fleet, self.desks)
        self.one, self.other = (
            Scene(self.fleet, self.admission, self.fleet.pool_for(model)) for model in ("m1", "m2")
        )

    def policies(self) -> list[Policy]:
        return [self.desks.of(scene.pool).policy for scene in (self.one, self.other)]

    def reload(self, plan: PolicyPlan) -> None:
        self.admission.reconfigure(plan, QueueRules(100, 0.0))


def test_each_pool_goes_by_its_own_policy() -> None:
    scene = TwoPools(plan(by_model={"m2": "session"}))
    assert [type(policy) for policy in scene.policies()] == [Stubborn, Keyed]


def test_the_policy_of_a_model_is_told_with_or_without_a_desk() -> None:
    scene = TwoPools(plan(by_model={"m2": "session"}))
    assert [scene.desks.policy_of(model) for model in ("m1", "m2")] == ["random", "session"]
    scene.reload(plan(by_model={"m1": "round-robin"}))
    assert [scene.desks.policy_of(model) for model in ("m1", "m2")] == ["round-robin", "random"]


def test_the_exchange_says_which_policy_chose_and_how() -> None:
    scene = TwoPools(plan(by_model={"m2": "session"}))
    exchanges = [one.granted().exchange for one in (scene.one, scene.other)]
    assert [(one.policy, one.affinity) for one in exchanges] == [("random", "none"), ("session", "hit")]
    assert dict(scene.metrics.routed_characters) == {("session", "a"): 80}
    assert dict(scene.metrics.cached_characters) == {("session",): 50}


def test_what_is_needed_is_what_the_policy_and_its_shadow_need() -> None:
    scene = TwoPools(plan(by_model={"m2": "session"}, shadow="prefix-cache"))
    assert scene.admission.needs(scene.one.pool) == Needs.BLOCKS
    assert scene.admission.needs(scene.other.pool) == Needs.SESSION | Needs.BLOCKS
    assert scene.admission.wants_keys
    scene.reload(plan())
    assert scene.admission.needs(scene.other.pool) == Needs.NOTHING
    assert not scene.admission.wants_keys


def test_a_policy_that_learns_hears_of_its_first_content_and_its_end() -> None:
    policy = Stubborn()
    scene = a_scene("a", most=0, make_policy=lambda: policy)
    lease = scene.granted()
    lease.exchange.first_content_at = 1001.5
    scene.admission.first_content(lease.exchange)
    scene.give_back(lease)
    scene.admission.first_content(lease.exchange)

    assert policy.told == ["sent a", "began a 1001.5", "finished a ok"]
    assert not scene.admission._desks.of(scene.pool)._sent


def test_a_policy_that_does_not_learn_is_told_nothing() -> None:
    policy = Unlearned()
    scene = a_scene("a", most=0, make_policy=lambda: policy)
    lease = scene.granted()
    scene.admission.first_content(lease.exchange)
    scene.give_back(lease)
    assert policy.told == []


def test_the_first_content_of_a_pool_without_a_desk_is_nobodys() -> None:
    scene = a_scene("a")
    scene.admission.first_content(an_exchange(model="other"))


def test_what_ended_is_told_as_its_engine_counted_it() -> None:
    policy = Stubborn()
    scene = a_scene("a", most=0, make_policy=lambda: policy)
    lease = scene.granted()
    exchange = lease.exchange
    exchange.prompt_tokens, exchange.cached_tokens, exchange.completion_tokens = 10, 4, 3
    scene.give_back(lease, outcome="client_gone")
    (ending,) = policy.endings
    assert (ending.outcome, ending.prompt_tokens, ending.cached_tokens, ending.completion_tokens) == (
        "client_gone",
        10,
        4,
        3,
    )


def test_only_the_pools_whose_policy_changes_begin_anew() -> None:
    scene = TwoPools(plan(by_model={"m2": "session"}))
    one, other = scene.policies()
    scene.reload(plan(by_model={"m2": "round-robin"}))
    assert scene.policies()[0] is one
    assert type(scene.policies()[1]) is Unlearned

    scene.reload(plan(by_model={"m2": "session"}))
    assert scene.policies()[0] is one
    assert scene.policies()[1] is not other


def test_a_policy_begins_anew_only_for_options_that_it_goes_by() -> None:
    scene = TwoPools(plan(by_model={"m2": "prefix-cache"}))
    one, other = scene.policies()
    scene.reload(plan(by_model={"m2": "prefix-cache"}, decisions_per_second=1, stick_to_api_key=True))
    assert scene.policies() == [one, other]
    scene.reload(plan(by_model={"m2": "prefix-cache"}, load_factor=9))
    assert scene.policies() == [one, other]
    scene.reload(plan(by_model={"m2": "prefix-cache"}, load_factor=9, prefix_index_bytes=1000))
    assert scene.policies()[0] is one
    assert scene.policies()[1] is not other


def test_a_shadow_begins_anew_only_for_options_that_it_goes_by() -> None:
    scene = TwoPools(plan(shadow="prefix-cache"))
    desk = scene.desks.of(scene.one.pool)
    policy, shadow = desk.policy, desk.shadow
    scene.reload(plan(shadow="prefix-cache", load_factor=9))
    assert desk.shadow is shadow
    scene.reload(plan(shadow="prefix-cache", load_factor=9, prefix_index_bytes=1000))
    assert desk.shadow is not shadow
    assert desk.policy is policy


def test_what_a_shadow_remembers_is_counted_with_the_rest() -> None:
    scene = TwoPools(plan("round-robin", {"m2": "prefix-cache"}, shadow="prefix-cache"))
    for one in (scene.one, scene.other):
        one.granted()
    assert scene.desks.remembered() == {"m1": (13, 70, 6, 4), "m2": (3, 20, 1, 4)}


def test_a_shadow_comes_stays_and_goes() -> None:
    scene = TwoPools(plan())
    before = scene.policies()
    scene.reload(plan(shadow="session"))
    desk = scene.desks.of(scene.one.pool)
    shadow = desk.shadow
    assert shadow is not None
    scene.reload(plan("round-robin", shadow="session"))
    assert desk.shadow is shadow
    scene.reload(plan(shadow="prefix-cache"))
    assert desk.shadow is not shadow
    scene.reload(plan())
    assert desk.shadow is None
    assert [type(policy) for policy in scene.policies()] == [type(policy) for policy in before]


def test_the_end_of_what_another_policy_sent_tells_the_new_one_nothing() -> None:
    scene = TwoPools(plan("random"))
    lease = scene.one.granted()
    scene.reload(plan("prefix-cache"))
    scene.one.give_back(lease)
    fresh = scene.desks.of(scene.one.pool).policy
    assert isinstance(fresh, Blocks)
    assert fresh.told == []


def test_a_shadow_that_is_placed_meanwhile_hears_of_later_requests_only() -> None:
    scene = TwoPools(plan("round-robin"))
    lease = scene.one.granted()
    scene.reload(plan("round-robin", shadow="prefix-cache"))
    scene.one.give_back(lease)
    scene.one.give_back(scene.one.granted())
    shadow = scene.desks.of(scene.one.pool).shadow
    assert shadow is not None
    assert isinstance(shadow.policy, Blocks)
    assert shadow.policy.told == ["sent a", "finished a ok"]


def test_desks_are_opened_with_the_shares_of_now() -> None:
    desks = desks_for(a_plan())
    desks.reweigh({"gold": 3.0})
    pool = a_fleet("a").pool_for("m1")
    assert desks.find("m1") is None
    assert desks.of(pool).book.account("gold").weight == 3.0
    desks.reweigh({})
    assert desks.of(pool).book.account("gold").weight == 1.0
    assert list(desks) == [desks.find("m1")]


def test_requests_are_a_desks_only_until_they_end() -> None:
    scene = a_scene("a", "b", most=0, make_policy=desks_for(a_plan(Keyed, Last)))
    leases = [scene.granted() for _ in range(3)]
    desk = scene.admission._desks.of(scene.pool)
    assert desk.shadow is not None
    assert len(desk._sent) == len(desk.shadow._sent) == 3
    for lease in leases:
        scene.give_back(lease)
    assert not desk._sent
    assert not desk.shadow._sent


# Workers


class Talking(Stubborn):
    """Tells how often it has sent something, and writes down what it hears."""

    ahead = -1
    obeyed = False

    def share(self, ahead: int, *, obeyed: bool = True) -> None:
        self.ahead, self.obeyed = ahead, obeyed

    def news(self) -> Sequence[Item]:
        count = sum(one.startswith("sent") for one in self.told)
        self.told = [one for one in self.told if not one.startswith("sent")]
        return [(ENDED, count)] if count else ()

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:
        self.told.append(f"heard {worker} {[*news]} {sorted(members)} {now:g}")

    def lost(self, worker: int) -> None:
        self.told.append(f"lost {worker}")


class Whispering(Talking):
    """The shadow."""


TALKERS: dict[str, type[Policy]] = {"session": Talking, "random": Whispering, "round-robin": Stubborn}


def talking(**options: Any) -> PolicyPlan:
    return PolicyPlan("session", {"m2": "round-robin"}, PolicyOptions(**options), TALKERS)


def talker(desks: Desks, model: str = "m1") -> Talking:
    desk = desks.find(model)
    assert desk is not None
    assert isinstance(desk.policy, Talking)
    return desk.policy


def whisperer(desks: Desks) -> Whispering:
    desk = desks.find("m1")
    assert desk is not None
    assert desk.shadow is not None
    assert isinstance(desk.shadow.policy, Whispering)
    return desk.shadow.policy


def test_what_policies_and_shadows_learn_is_told_with_their_names_and_models() -> None:
    scene = TwoPools(talking(shadow="random"))
    assert scene.desks.news() == []
    for one in (scene.one, scene.one, scene.other):
        one.granted()
    assert scene.desks.news() == [
        ("m1", "session", False, [(ENDED, 2)]),
        ("m1", "random", True, [(ENDED, 2)]),
        ("m2", "random", True, [(ENDED, 1)]),
    ]
    assert scene.desks.news() == []


@pytest.mark.parametrize("early", [True, False])
def test_it_is_said_when_policies_may_have_learned_something(early: bool) -> None:
    stirred: list[str] = []
    scene = TwoPools(talking(shadow="random"))
    if early:
        for pool in scene.fleet.pools.values():
            scene.desks.of(pool)
    scene.desks.share(0, 2, lambda: stirred.append("stirred"))
    lease = scene.one.granted()
    assert len(stirred) == 1
    scene.one.admission.first_content(lease.exchange)
    assert len(stirred) == 2
    scene.one.give_back(lease)
    assert len(stirred) == 3
    scene.other.granted()
    assert len(stirred) == 4


def test_news_open_the_desk_that_they_are_for() -> None:
    fleet = a_fleet("a", "b")
    desks = desks_for(a_plan())
    desks.plan = talking(shadow="random")
    told = [("m1", "session", False, [(ENDED, 1)]), ("m1", "random", True, [(ENDED, 2)])]
    desks.hear(3, told, fleet.pools, 1002.0)
    assert talker(desks).told == ["heard 3 [(3, 1)] ['a', 'b'] 1002"]
    assert whisperer(desks).told == ["heard 3 [(3, 2)] ['a', 'b'] 1002"]


def test_news_for_a_pool_or_a_policy_that_is_not_here_are_passed_over() -> None:
    scene = TwoPools(talking(shadow="random"))
    scene.one.granted()
    scene.desks.news()
    news = [(ENDED, 1)]
    told = [
        ("m9", "session", False, news),
        ("m1", "session", True, news),
        ("m1", "prefix-cache", False, news),
    ]
    scene.desks.hear(1, told, scene.fleet.pools, 1000.0)
    assert talker(scene.desks).told == []
    assert scene.desks.find("m9") is None


def test_every_policy_is_told_that_a_worker_is_lost() -> None:
    scene = TwoPools(talking(shadow="random"))
    for one in (scene.one, scene.other):
        one.granted()
    scene.desks.news()
    scene.desks.lost(4)
    assert talker(scene.desks).told == whisperer(scene.desks).told == ["lost 4"]


def test_policies_are_shared_whether_they_are_there_or_come_later() -> None:
    fleet = a_fleet("a", "b", "c", "d")
    desks = Desks(talking(), Metrics(), Decisions(0))
    scene = Scene(fleet, admission_for(fleet, desks), fleet.pool_for("m1"))
    first = desks.of(scene.pool).policy
    assert isinstance(first, Talking)
    assert first.ahead == -1
    desks.share(1, 2, lambda: None)
    assert first.ahead == 2
    desks.share(3, 4, lambda: None)
    scene.admission.reconfigure(talking(shadow="random"), QueueRules(100, 0.0))
    assert (talker(desks).ahead, whisperer(desks).ahead) == (3, 3)
    assert (talker(desks).obeyed, whisperer(desks).obeyed) == (True, False)
    alone = Desks(talking(), Metrics(), Decisions(0))
    assert isinstance(policy := alone.of(scene.pool).policy, Talking)
    assert policy.ahead == -1
