"""The policy that goes by what is cached: it stays where that pays, and nowhere else."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, View, Wait
from replicarouter.policies.prefix_cache import PrefixCache
from replicarouter.protocol.request import BLOCK_CHARACTERS, InferenceRequest
from replicarouter.settings import PolicyOptions
from tests.scene import a_replica, a_request

BLOCK_TOKENS = BLOCK_CHARACTERS // 4


class Scene:
    """A pool, its policy, and requests that run as long as the test wants."""

    def __init__(self, replicas: int = 4, *, most: int = 0, policy: PrefixCache | None = None) -> None:
        ledger = Ledger()
        self.replicas = [a_replica(f"r{number}", ledger=ledger, most=most) for number in range(replicas)]
        for replica in self.replicas:
            replica.health = State.READY
        self.policy = policy or PrefixCache()
        self.now = 1000.0
        self._random = Random(7)

    def view(self, *, without: Replica | None = None, waited: float = 0.0) -> View:
        candidates = [one for one in self.replicas if one.has_room and one is not without]
        return View(self.replicas, candidates, self.now, self._random, waited)

    def send(self, request: InferenceRequest, *, without: Replica | None = None) -> Replica:
        chosen = self.policy.pick(request, self.view(without=without))
        assert isinstance(chosen, Replica)
        chosen.cells[chosen.row + OUTSTANDING] += 1
        self.policy.sent(request, chosen, self.now)
        return chosen

    def end(
        self, request: InferenceRequest, replica: Replica, *, ttft: float = 0.1, cached: int | None = None
    ) -> None:
        self.now += ttft
        self.policy.began(request, replica, self.now)
        replica.cells[replica.row + OUTSTANDING] -= 1
        ending = Ending("ok", request.characters // 4, cached, 10)
        self.policy.finished(request, replica, ending, self.now)

    def serve(self, request: InferenceRequest, *, ttft: float = 0.1, cached: int | None = None) -> Replica:
        replica = self.send(request)
        self.end(request, replica, ttft=ttft, cached=cached)
        return replica


def asking(*parts: int) -> InferenceRequest:
    """A prompt of one block a part, and half a block more."""
    request = a_request()
    request.stream = True
    request.blocks = [hash(parts[: end + 1]) for end in range(len(parts))]
    request.characters = BLOCK_CHARACTERS * len(parts) + BLOCK_CHARACTERS // 2
    return request


def turns(user: int, count: int, head: int = 0) -> list[InferenceRequest]:
    """A conversation behind `head` blocks that all users share."""
    shared = [-1] * head
    return [asking(*shared, *(1000 * user + part for part in range(4 + 2 * turn))) for turn in range(count)]


def test_every_turn_of_a_conversation_meets_its_cache() -> None:
    scene = Scene()
    for user in range(20):
        first, *later = turns(user, 5)
        home = scene.serve(first)
        assert first.affinity == "new"
        for request in later:
            assert scene.serve(request) is home
            assert request.affinity == "hit"
            assert request.found > 0


def test_requests_without_a_whole_block_have_no_key() -> None:
    scene = Scene()
    short = asking()
    chosen = {scene.serve(short).name for _ in range(8)}
    assert short.affinity == "none"
    assert len(chosen) == 4


def test_one_client_who_asks_one_thing_after_the_other_uses_all_replicas() -> None:
    scene = Scene(8)
    counts = Counter(scene.serve(asking(number, 1, 2, 3)).name for number in range(80))
    assert set(counts.values()) == {10}


def test_what_everybody_shares_draws_nobody_to_one_replica() -> None:
    scene = Scene(8)
    counts: Counter[str] = Counter()
    stayed = []
    for user in range(200):
        first, second = turns(user, 2, head=30)
        home = scene.serve(first)
        counts[home.name] += 1
        stayed.append(scene.serve(second) is home)

    assert max(counts.values()) <= 1.5 * 200 / 8
    assert sum(stayed) >= 0.95 * len(stayed)


def test_a_holder_that_is_busier_than_it_is_worth_is_left() -> None:
    scene = Scene(4)
    first, second = turns(1, 2)
    home = scene.serve(first)
    for number in range(60):
        request = asking(*(10_000 + 100 * number + part for part in range(60)))
        home.cells[home.row + OUTSTANDING] += 1
        scene.policy.sent(request, home, scene.now)

    other = scene.send(second)

    assert other is not home
    assert second.affinity == "spill"


def test_a_little_load_is_no_reason_to_leave() -> None:
    scene = Scene(4)
    first, second = turns(1, 2)
    home = scene.serve(first)
    home.cells[home.row + OUTSTANDING] += 1

    assert scene.send(second) is home


def test_a_holder_that_cannot_take_it_is_a_rehash() -> None:
    scene = Scene(4)
    first, second = turns(1, 2)
    home = scene.serve(first)

    assert scene.send(second, without=home) is not home
    assert second.affinity == "rehash"


def test_a_replica_that_left_or_was_restarted_has_no_cache() -> None:
    scene = Scene(4)
    first, second, third = turns(1, 3)
    home = scene.serve(first)
    home.restarts += 1
    scene.policy.sent(asking(5), home, scene.now)
    scene.send(second)
    assert second.affinity == "new"

    scene.policy.removed(home)
    scene.replicas = [one for one in scene.replicas if one is not home]
    assert scene.send(third) in scene.replicas


def test_the_capacity_is_the_engines_own() -> None:
    scene = Scene(1)
    (only,) = scene.replicas
    only.take(EngineReading(running=0, waiting=0, kv_capacity=10 * BLOCK_TOKENS), scene.now)
    for number in range(5):
        scene.serve(asking(*(100 * number + part for part in range(4))))

    assert scene.policy.index.blocks_of(0) == 10


def test_a_cache_that_keeps_less_than_it_should_is_trusted_less() -> None:
    scene = Scene(1)
    scene.replicas[0].take(EngineReading(running=0, waiting=0, kv_capacity=100 * BLOCK_TOKENS), scene.now)
    for number in range(200):
        scene.serve(asking(*(100 * (number % 2) + part for part in range(5))), cached=0)
    for number in range(100):
        scene.serve(asking(10_000 + number))

    assert scene.policy.index.blocks_of(0) == 25


def test_a_cache_that_keeps_what_it_should_is_trusted() -> None:
    scene = Scene(1)
    scene.replicas[0].take(EngineReading(running=0, waiting=0, kv_capacity=100 * BLOCK_TOKENS), scene.now)
    for number in range(300):
        request = asking(*(100 * (number % 20) + part for part in range(5)))
        scene.serve(request, cached=request.characters // 4 if number >= 20 else 0)

    assert scene.policy.index.blocks_of(0) == 100


def test_a_full_holder_is_waited_for_if_that_is_sooner_than_to_compute_it_again() -> None:
    scene = Scene(2, most=2)
    long = asking(*range(200))
    home = scene.serve(long, ttft=2.0)
    for _ in range(2):
        assert scene.send(asking(*range(200))) is home

    waiting = scene.policy.pick(asking(*range(210)), scene.view())
    assert isinstance(waiting, Wait)
    assert waiting.replica is home
    assert 0 < waiting.seconds < 10

    patient = scene.policy.pick(asking(*range(210)), scene.view(waited=waiting.seconds + 1))
    assert isinstance(patient, Replica)


def test_a_full_holder_of_little_is_not_waited_for() -> None:
    scene = Scene(2, most=1)
    short = asking(1, 2)
    scene.serve(short, ttft=5.0)
    scene.send(short)

    assert isinstance(scene.policy.pick(asking(1, 2, 3), scene.view()), Replica)


def test_a_holder_that_is_not_ready_is_not_waited_for() -> None:
    scene = Scene(2, most=1)
    long = asking(*range(200))
    home = scene.serve(long, ttft=1.0)
    scene.send(long)
    home.health = State.UNHEALTHY

    assert isinstance(scene.policy.pick(asking(*range(210)), scene.view()), Replica)


def test_what_it_compares_is_told_and_changes_nothing() -> None:
    scene = Scene(2)
    first, second = turns(1, 2)
    home = scene.serve(first)

    figures = scene.policy.explain(second, scene.view())
    again = scene.policy.explain(second, scene.view())

    assert figures == again
    assert set(figures) == {"r0", "r1"}
    assert figures[home.name]["cached"] == pytest.approx(4 * BLOCK_TOKENS)
    costs = {name: one["cost"] for name, one in figures.items()}
    assert min(costs, key=costs.__getitem__) == home.name
    assert scene.send(second) is home


def test_the_index_keeps_to_the_bytes_it_is_given() -> None:
    options = PolicyOptions.model_validate({"prefix_index_bytes": 100_000})
    scene = Scene(4, policy=PrefixCache.of(options))
    for number in range(500):
        scene.serve(asking(*(100 * number + part for part in range(20))))

    assert 50_000 < scene.policy.index.bytes <= 100_000


def test_a_full_holder_for_which_others_wait_is_not_waited_for() -> None:
    scene = Scene(2, most=2)
    long = asking(*range(200))
    home = scene.serve(long, ttft=2.0)
    for _ in range(2):
        scene.send(asking(*range(200)))
    view = scene.view()
    assert isinstance(scene.policy.pick(asking(*range(210)), view), Wait)

    view.held = {home: 3}

    assert isinstance(scene.policy.pick(asking(*range(210)), view), Replica)


def test_a_prompt_that_was_not_computed_is_not_in_the_cache() -> None:
    scene = Scene(2)
    failed = asking(1, 2, 3)
    replica = scene.send(failed)
    scene.policy.finished(failed, replica, Ending("connect_failed"), scene.now)

    assert scene.policy.index.entries == 0


def test_what_later_prompts_count_on_stays_though_the_first_failed() -> None:
    scene = Scene(1)
    failed, later = asking(1, 2, 3), asking(1, 2, 3, 4)
    replica = scene.send(failed)
    scene.send(later)
    scene.policy.finished(failed, replica, Ending("client_gone"), scene.now)

    assert scene.policy.index.held(0, later.blocks) == 4


def test_prompts_of_answers_that_do_not_stream_are_taken_as_computed_in_time() -> None:
    scene = Scene(2)
    request = asking(*range(100))
    request.stream = False
    scene.send(request)
    assert max(scene.policy._backlog.waiting) > 0

    scene.now += 60
    scene.policy.pick(asking(7), scene.view())

    assert max(scene.policy._backlog.waiting) == 0


@pytest.mark.parametrize(("prompt", "cached"), [(2**62, None), (4000, -(2**62)), (100, 5000), (-5, 0)])
def test_nonsense_of_an_engine_teaches_nothing(prompt: int, cached: int | None) -> None:
    scene = Scene(1)
    speed, ratio = scene.policy._speed.tokens_per_second, scene.policy._tokens.per_character
    request = asking(*range(40))
    replica = scene.send(request)
    scene.policy.began(request, replica, scene.now + 0.1)
    scene.policy.finished(request, replica, Ending("ok", prompt, cached), scene.now + 1)

    assert scene.policy._speed.tokens_per_second == speed
    assert scene.policy._tokens.per_character == ratio


def test_the_speed_is_not_learned_from_prompts_that_stood_behind_others() -> None:
    scene = Scene(1)
    first, second = asking(*range(40)), asking(*range(50, 90))
    replica = scene.send(first)
    scene.send(second)
    for request in (first, second):
        scene.policy.began(request, replica, scene.now + 1.0)
    for request in (first, second):
        scene.policy.finished(request, replica, Ending("ok", 5000, 0), scene.now + 1.0)

    assert scene.policy._speed.tokens_per_second == pytest.approx(5000)


def test_prompts_are_dealt_out_by_weight() -> None:
    scene = Scene(2)
    light, heavy = scene.replicas
    heavy.weight = 4.0
    for number in range(400):
        scene.send(asking(*(1000 * number + part for part in range(10))))

    assert heavy.outstanding == pytest.approx(4 * light.outstanding, rel=0.15)


def test_nothing_is_kept_of_requests_that_have_ended() -> None:
    scene = Scene(3)
    for user in range(50):
        for request in turns(user, 2):
            scene.serve(request)

    assert not scene.policy._flights
    assert sum(scene.policy._backlog.waiting) == 0


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "began", "finish", "remove", "add", "restart", "reading"]),
        st.integers(0, 7),
        st.lists(st.integers(0, 3), max_size=8),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(ACTIONS)
def test_it_never_raises_whatever_happens_in_which_order(
    actions: list[tuple[str, int, list[int]]],
) -> None:
    scene = Scene(3, most=3)
    running: list[tuple[InferenceRequest, Replica]] = []
    for action, number, parts in actions:
        pool = scene.replicas
        replica = pool[number % len(pool)]
        if action == "send" and any(one.has_room for one in pool):
            request = asking(*parts)
            chosen = scene.policy.pick(request, scene.view())
            if isinstance(chosen, Wait):
                chosen = scene.policy.pick(request, scene.view(waited=1e9))
            assert isinstance(chosen, Replica)
            assert chosen.has_room
            chosen.cells[chosen.row + OUTSTANDING] += 1
            scene.policy.sent(request, chosen, scene.now)
            running.append((request, chosen))
        elif action in ("began", "finish") and running:
            request, chosen = running[number % len(running)]
            scene.policy.began(request, chosen, scene.now)
            if action == "finish":
                running.remove((request, chosen))
                chosen.cells[chosen.row + OUTSTANDING] -= 1
                cached = None if number % 2 else number * 40
                scene.policy.finished(request, chosen, Ending("ok", number * 100, cached), scene.now)
        elif action == "remove" and len(pool) > 1:
            scene.replicas = [one for one in pool if one is not replica]
            scene.policy.removed(replica)
        elif action == "add":
            newcomer = Replica.join(replica.settings, Ledger(), 3)
            newcomer.health = State.READY
            scene.replicas = [*pool, newcomer]
        elif action == "restart":
            replica.restarts += 1
        elif action == "reading":
            replica.take(EngineReading(running=number, waiting=0, kv_capacity=number * 1000), scene.now)
        scene.now += 0.01
