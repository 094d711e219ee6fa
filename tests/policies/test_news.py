"""What the policies of several workers tell each other, for every policy in the table."""

import marshal
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import HIT, NEW, Ending, Policy, View
from replicarouter.policies.news import (
    COMPUTED,
    ENDED,
    FAILED,
    MISSED,
    MOST_BYTES,
    MOST_ITEMS,
    PLACED,
    SENT,
    Notebook,
)
from replicarouter.policies.prefix_cache import PrefixCache
from replicarouter.policies.session import Session
from replicarouter.protocol.request import InferenceRequest
from tests.properties import examples
from tests.scene import a_replica, a_request

LEARNING = tuple(name for name, policy in POLICIES.items() if policy.learns)
TAKING_TURNS = ("round-robin", "least-outstanding")

STEPS = ("send", "send", "send", "began", "end", "tell", "tell", "lost", "removed")

every_policy = pytest.mark.parametrize("name", POLICIES)
every_learner = pytest.mark.parametrize("name", LEARNING)


class Crew:
    """The policies of several workers that serve one pool."""

    def __init__(self, name: str, workers: int = 2, replicas: int = 4) -> None:
        ledger = Ledger()
        self.replicas: Sequence[Replica] = [
            a_replica(f"r{number}", ledger=ledger) for number in range(replicas)
        ]
        self.policies: list[Policy] = [POLICIES[name]() for _ in range(workers)]
        self.random = Random(7)
        self.now = 1000.0
        for number, policy in enumerate(self.policies):
            policy.share(number * replicas // workers)

    def view(self) -> View:
        return View(self.replicas, self.replicas, self.now, self.random)

    def pick(self, worker: int, request: InferenceRequest) -> Replica:
        chosen = self.policies[worker].pick(request, self.view())
        assert isinstance(chosen, Replica)
        return chosen

    def send(self, worker: int, request: InferenceRequest) -> Replica:
        chosen = self.pick(worker, request)
        self.policies[worker].sent(request, chosen, self.now)
        return chosen

    def end(self, worker: int, request: InferenceRequest, replica: Replica, outcome: str = "ok") -> None:
        self.policies[worker].finished(request, replica, Ending(outcome), self.now)

    def tell(self, *, members: Sequence[Replica] | None = None) -> None:
        """Everybody hears what all others have learned."""
        named = {one.name: one for one in (self.replicas if members is None else members)}
        told = [policy.news() for policy in self.policies]
        for sender, news in enumerate(told):
            carried = marshal.loads(marshal.dumps([*news]))
            for number, policy in enumerate(self.policies):
                if number != sender:
                    policy.hear(sender, carried, named, self.now)


def asking(number: int, *, blocks: int = 8, stream: bool = True) -> InferenceRequest:
    request = a_request()
    keys = Random(number)
    request.session = request.head = keys.getrandbits(64)
    request.blocks = [keys.getrandbits(64) for _ in range(blocks)]
    request.characters = blocks * request.block_characters
    request.stream = stream
    return request


def load(replica: Replica, outstanding: int) -> None:
    replica.cells[replica.row + OUTSTANDING] = outstanding


def cache(crew: Crew, worker: int) -> PrefixCache:
    policy = crew.policies[worker]
    assert isinstance(policy, PrefixCache)
    return policy


def step(crew: Crew, what: str, request: InferenceRequest, worker: int, who: int) -> None:
    """Let something happen to a request, a worker, a replica."""
    replica, policy = crew.replicas[who % len(crew.replicas)], crew.policies[worker]
    match what:
        case "send":
            crew.end(worker, request, replica, "connect_failed")
            crew.send(worker, request)
        case "began":
            policy.began(request, replica, crew.now)
        case "end":
            crew.end(worker, request, replica, ("ok", "client_gone")[who % 2])
        case "tell":
            crew.tell(members=crew.replicas[: who + 1])
        case "lost":
            policy.lost(who)
        case "removed" if len(crew.replicas) > 1:
            crew.replicas = [one for one in crew.replicas if one is not replica]
            for one in crew.policies[: worker + 1]:
                one.removed(replica)


@every_policy
def test_nothing_is_collected_unless_it_is_shared(name: str) -> None:
    crew = Crew(name)
    alone = POLICIES[name]()
    for number in range(20):
        request = asking(number)
        chosen = alone.pick(request, crew.view())
        assert isinstance(chosen, Replica)
        alone.sent(request, chosen, 1000.0)
        alone.finished(request, chosen, Ending("ok"), 1000.0)
    assert not alone.news()


@every_learner
def test_who_has_heard_sends_a_request_where_the_other_did(name: str) -> None:
    crew = Crew(name, replicas=8)
    homes = {}
    for number in range(40):
        for replica in crew.replicas:
            load(replica, crew.random.randrange(12))
        homes[number] = crew.send(0, asking(number))
    for replica in crew.replicas:
        load(replica, 0)
    crew.tell()
    for number, home in homes.items():
        again = asking(number)
        assert crew.pick(1, again) is home
        assert again.affinity == HIT


@every_learner
def test_who_has_not_heard_takes_it_for_new(name: str) -> None:
    crew = Crew(name)
    crew.send(0, asking(1))
    request = asking(1)
    crew.pick(1, request)
    assert request.affinity == NEW


@every_learner
def test_what_was_told_is_not_told_again(name: str) -> None:
    crew = Crew(name)
    crew.send(0, asking(1))
    assert crew.policies[0].news()
    assert not crew.policies[0].news()
    crew.tell()
    assert not crew.policies[1].news()


@every_learner
def test_news_of_a_replica_that_is_no_member_is_passed_over(name: str) -> None:
    crew = Crew(name)
    chosen = crew.send(0, asking(1))
    crew.tell(members=[one for one in crew.replicas if one is not chosen])
    request = asking(1)
    crew.pick(1, request)
    assert request.affinity == NEW


@every_policy
def test_nothing_that_is_told_raises(name: str) -> None:
    crew = Crew(name)
    policy = crew.policies[0]
    policy.hear(1, [(ENDED, 7), (FAILED, 8), (MISSED,)], {}, 1000.0)
    policy.hear(1, [(PLACED, 5, "gone", False, 1.0), (SENT, 1, "gone", b"", 512, 3.0, 0.0)], {}, 1000.0)
    policy.lost(1)
    assert policy.remembered().entries == 0


@every_policy
@examples(100)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 3)), max_size=60))
def test_whatever_happens_while_news_go_round_nothing_raises(name: str, steps: list[Any]) -> None:
    crew = Crew(name, workers=3)
    requests = [asking(number, stream=number != 2) for number in range(4)]
    for what, which, who in steps:
        crew.now += 0.1
        step(crew, what, requests[which], which % 3, who)
    for policy in crew.policies:
        for worker in range(3):
            policy.lost(worker)
        for request in requests:
            policy.finished(request, crew.replicas[0], Ending("ok"), crew.now)
        if isinstance(policy, PrefixCache):
            assert sum(policy._backlog.waiting) == 0


@every_policy
def test_news_that_nobody_takes_are_bounded(name: str) -> None:
    crew = Crew(name)
    for number in range(MOST_ITEMS + 10):
        crew.send(0, asking(number, blocks=1))
    assert len(crew.policies[0].news()) <= MOST_ITEMS


@pytest.mark.parametrize("name", TAKING_TURNS)
@pytest.mark.parametrize("workers", [2, 4])
def test_the_first_turns_of_all_workers_meet_all_replicas(name: str, workers: int) -> None:
    crew = Crew(name, workers, replicas=8)
    turns = [crew.pick(worker, a_request()) for _ in range(8 // workers) for worker in range(workers)]
    assert Counter(one.name for one in turns) == {one.name: 1 for one in crew.replicas}


# Notebook


def test_a_notebook_has_what_was_noted_since_it_was_asked() -> None:
    notebook = Notebook()
    notebook.note((ENDED, 1))
    notebook.note((ENDED, 2))
    assert notebook.take() == [(ENDED, 1), (ENDED, 2)]
    assert notebook.take() == []


@pytest.mark.parametrize("extra", [0, MOST_BYTES // 100])
def test_where_nobody_takes_them_all_are_forgotten_and_that_is_told(extra: int) -> None:
    notebook = Notebook()
    fit = 0
    while True:
        notebook.note((ENDED, fit), extra)
        if len(notebook) <= fit:
            break
        fit += 1
    assert fit == (99 if extra else MOST_ITEMS)
    assert notebook.take() == [(MISSED,), (ENDED, fit)]
    notebook.note((ENDED, 0), extra)
    assert len(notebook) == 1


# Places of keys


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_all_come_to_one_place_whatever_they_hear_first(order: Sequence[int]) -> None:
    crew = Crew("session", workers=4)
    key = asking(1).session or 0
    told = [(PLACED, key, name, True, at) for name, at in (("r3", 5.0), ("r1", 7.0), ("r2", 7.0))]
    named = {one.name: one for one in crew.replicas}
    crew.policies[3].hear(0, [told[number] for number in order], named, 1000.0)
    assert crew.pick(3, asking(1)).name == "r2"


def test_two_that_place_a_key_at_once_agree_once_they_have_heard() -> None:
    crew = Crew("session", workers=3)
    home = crew.pick(2, asking(1))
    load(home, 50)
    displaced = crew.send(0, asking(1))
    load(home, 0)
    crew.now += 0.001
    assert crew.send(1, asking(1)) is home is not displaced
    crew.tell()
    assert [crew.pick(worker, asking(1)) for worker in range(3)] == [home] * 3


def test_a_key_is_told_of_once() -> None:
    crew = Crew("session")
    for _ in range(5):
        crew.send(0, asking(1))
    assert len(crew.policies[0].news()) == 1


def test_a_key_that_moves_since_its_replica_has_gone_is_told_of_again() -> None:
    crew = Crew("session")
    gone = crew.send(0, asking(1))
    crew.tell()
    crew.replicas = [one for one in crew.replicas if one is not gone]
    crew.now += 1
    heir = crew.send(0, asking(1))
    crew.tell()
    assert crew.pick(1, asking(1)) is heir


# Prompts


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("outcome", ["ok", "client_gone"])
def test_what_others_have_sent_is_waiting_until_they_tell_that_it_is_not(stream: bool, outcome: str) -> None:
    crew = Crew("prefix-cache")
    request = asking(1, stream=stream)
    chosen = crew.send(0, request)
    crew.tell()
    backlog = cache(crew, 1)._backlog
    assert sum(backlog.waiting) == sum(cache(crew, 0)._backlog.waiting) > 0
    crew.end(0, request, chosen, outcome)
    crew.tell()
    assert sum(backlog.waiting) == 0


def test_a_prompt_is_told_to_be_computed_once() -> None:
    crew = Crew("prefix-cache")
    request = asking(1)
    chosen = crew.send(0, request)
    crew.policies[0].began(request, chosen, 1000.5)
    crew.policies[0].began(request, chosen, 1000.6)
    crew.end(0, request, chosen)
    assert [item[0] for item in crew.policies[0].news()] == [SENT, COMPUTED, ENDED]


def test_where_no_stream_tells_it_all_take_it_for_computed_at_the_same_time() -> None:
    crew = Crew("prefix-cache")
    crew.send(0, asking(1, stream=False))
    crew.tell()
    crew.now += 60.0
    crew.pick(1, asking(2))
    assert sum(cache(crew, 1)._backlog.waiting) == 0


def test_what_was_not_computed_is_held_by_nobody() -> None:
    crew = Crew("prefix-cache")
    request = asking(1)
    chosen = crew.send(0, request)
    crew.tell()
    assert cache(crew, 1).index.entries == 8
    crew.end(0, request, chosen, "connect_failed")
    crew.tell()
    assert cache(crew, 0).index.entries == cache(crew, 1).index.entries == 0


@pytest.mark.parametrize("how", ["lost", "missed"])
def test_what_a_worker_had_under_way_does_not_wait_for_ever(how: str) -> None:
    crew = Crew("prefix-cache", workers=3)
    for number in range(6):
        crew.send(number % 2, asking(number))
    crew.tell()
    listener = cache(crew, 2)
    both = sum(listener._backlog.waiting)
    if how == "lost":
        listener.lost(0)
    else:
        listener.hear(0, [(MISSED,)], {}, crew.now)
    assert sum(listener._backlog.waiting) == pytest.approx(both / 2)
    assert listener.index.entries == 6 * 8
    listener.hear(0, [(ENDED, 1), (FAILED, 2)], {}, crew.now)
    assert sum(listener._backlog.waiting) == pytest.approx(both / 2)


def test_a_number_that_is_used_again_is_another_request() -> None:
    crew = Crew("prefix-cache")
    crew.send(0, asking(1))
    (told,) = crew.policies[0].news()
    named = {one.name: one for one in crew.replicas}
    for _ in range(3):
        crew.policies[1].hear(0, [told], named, crew.now)
    crew.policies[1].hear(0, [(ENDED, told[1])], named, crew.now)
    assert sum(cache(crew, 1)._backlog.waiting) == 0


def test_what_others_had_at_a_replica_that_left_does_not_weigh_on_its_successor() -> None:
    crew = Crew("prefix-cache")
    chosen = crew.send(0, asking(1))
    crew.tell()
    listener = cache(crew, 1)
    listener.removed(chosen)
    crew.replicas = [one for one in crew.replicas if one is not chosen] + [a_replica("new")]
    crew.send(1, asking(2))
    before = [*listener._backlog.waiting]
    listener.lost(0)
    assert listener._backlog.waiting == before


def test_a_conversation_is_counted_once_by_everybody() -> None:
    crew, alone = Crew("prefix-cache", workers=3), PrefixCache()
    head = [number + 1 for number in range(6)]
    for number in range(60):
        for turn in (1, 2):
            request = asking(number, blocks=4 * turn)
            request.blocks = [*head, *request.blocks]
            chosen = crew.send(number % 3 if turn == 1 else (number + 1) % 3, request)
            alone.sent(request, chosen, crew.now)
        if number % 5 == 0:
            crew.tell()
    crew.tell()
    found = alone.index.find(head)
    assert found.popular == 6
    for worker in range(3):
        assert cache(crew, worker).index.find(head)[1:] == found[1:]
        counts = [cache(crew, worker).index._blocks[block].count for block in head]
        assert counts == [alone.index._blocks[block].count for block in head]


def test_a_session_policy_passes_over_what_prompts_are_told_of() -> None:
    policy = Session()
    policy.hear(1, [(SENT, 1, "r0", b"", 512, 3.0, 0.0), (ENDED, 1)], {}, 1000.0)
    assert policy.remembered().entries == 0


def test_requests_at_one_moment_are_spread_though_nobody_has_heard_of_them_yet() -> None:
    crew = Crew("prefix-cache", workers=4, replicas=8)
    for number in range(80):  # Long prompts are typical.
        request = asking(number, blocks=64)
        crew.end(number % 4, request, crew.send(number % 4, request))
    crew.tell()
    together = []
    for number in range(16):
        chosen = crew.send(number % 4, asking(100 + number, blocks=64))
        load(chosen, chosen.outstanding + 1)
        together.append(chosen.name)
    assert set(Counter(together).values()) == {2}


def test_what_replicas_have_of_other_models_is_not_taken_for_unheard() -> None:
    crew = Crew("prefix-cache")
    busy = crew.replicas[0]
    load(busy, 9)

    def cost() -> float:
        return crew.policies[0].explain(asking(1), crew.view())["r0"]["load"]

    crew.send(0, asking(2))
    busy.cards = ({"id": "m1"},)
    alone = cost()
    busy.cards = ({"id": "m1"}, {"id": "an-adapter"})
    assert cost() < alone
