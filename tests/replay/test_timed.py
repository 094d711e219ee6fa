"""The replay in virtual time."""

import pytest

from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import Ending, Policy, View
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.policies.prefix_cache import PrefixCache
from replicarouter.policies.round_robin import RoundRobin
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.baselines import BASELINES
from replicarouter.replay.gate import GateRules
from replicarouter.replay.tally import NO_ITL, Tally
from replicarouter.replay.timed import ReplayError, Timed, TimedOptions
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.replay.workloads.base import Workload, WorkloadOptions
from replicarouter.simulator.profiles import DEFAULT_PROFILE, PROFILES
from tests.replay.scene import BLOCK, Script, turn

PROFILE = PROFILES[DEFAULT_PROFILE]
ALONE = PROFILE.decode_seconds(1)
PREFILL = PROFILE.prefill_seconds_per_token


class Told(RoundRobin):
    """Round robin that writes down what it is told and what it sees."""

    learns = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, float]] = []
        self.endings: list[Ending] = []
        self.seen: list[tuple[int, ...]] = []
        self.read_at: list[float] = []

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        self.seen.append(tuple(replica.outstanding for replica in view.replicas))
        reading = view.replicas[0].reading
        assert reading is not None
        self.read_at.append(reading.at)
        return super().pick(request, view)

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append(("sent", now))

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        self.told.append(("began", now))

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        self.told.append(("finished", now))
        self.endings.append(ending)


def replay(demand: Script, policy: Policy | None = None, **options: object) -> Tally:
    given = {"replicas": 1, "kv_blocks": 1000, **options}
    return Timed(TimedOptions(**given), demand, policy or RoundRobin()).run()  # type: ignore[arg-type]


def test_a_lone_request_takes_what_the_profile_says() -> None:
    tally = replay(Script([(0.0, [turn(1, 2, 3, output=11)])]))
    assert tally.ttft[0] == pytest.approx(ALONE + 3 * BLOCK * PREFILL)
    assert tally.itl[0] == pytest.approx(ALONE)
    assert (tally.requests, tally.answered, tally.output_tokens) == (1, 1, 11)
    assert tally.gaps.count == 10


def test_an_answer_of_one_token_has_no_gap() -> None:
    tally = replay(Script([(0.0, [turn(1, output=1)])]))
    assert list(tally.itl) == [NO_ITL]


def test_the_next_turn_comes_after_the_answer_and_the_pause_and_finds_its_prompt_cached() -> None:
    policy = Told()
    first = turn(1, 2, output=5)
    second = turn(1, 2, 3, output=5, delay=2.0)
    tally = replay(Script([(1.0, [first, second])]), policy)
    names = [name for name, _ in policy.told]
    assert names == ["sent", "began", "finished"] * 2
    times = [moment for _, moment in policy.told]
    assert times[0] == 1.0
    assert times[3] == pytest.approx(times[2] + 2.0)
    assert tally.cached_tokens == 2 * BLOCK
    assert policy.endings[1] == Ending("ok", 3 * BLOCK, 2 * BLOCK, 5)


def test_known_replies_are_found_again() -> None:
    first = turn(1, 2, output=BLOCK + 1)
    first.final_blocks = (1, 2, 3)
    demand = Script([(0.0, [first, turn(1, 2, 3, 4)])])
    assert replay(demand).cached_tokens == 3 * BLOCK


def test_a_policy_sees_what_is_outstanding_and_the_readings_of_the_scrapes() -> None:
    policy = Told()
    demand = Script([(0.0, [turn(1, output=500)]), (0.5, [turn(2)]), (2.5, [turn(3)])])
    replay(demand, policy, replicas=2)
    assert policy.seen == [(0, 0), (1, 0), (1, 0)]
    assert policy.read_at == [0.0, 0.0, 2.0]


def test_without_scrapes_there_is_one_reading() -> None:
    policy = Told()
    replay(Script([(0.0, [turn(1, output=500)]), (2.5, [turn(3)])]), policy, scrape=0.0)
    assert policy.read_at == [0.0, 0.0]


def test_above_the_limit_requests_queue_and_their_wait_counts() -> None:
    demand = Script([(0.0, [turn(number, output=101)]) for number in range(3)])
    free = replay(demand)
    limited = replay(demand, gate=GateRules(most=1, seconds=0.0))
    assert max(free.ttft) < 0.1
    assert sorted(limited.ttft)[1] == pytest.approx(100 * ALONE, rel=0.1)
    assert sorted(limited.ttft)[2] == pytest.approx(200 * ALONE, rel=0.1)


def test_who_finds_no_room_in_time_is_refused_and_the_conversation_goes_on() -> None:
    demand = Script([(0.0, [turn(1, output=500)]), (0.1, [turn(2), turn(3, delay=60.0)])])
    tally = replay(demand, gate=GateRules(most=1, seconds=1.0))
    assert (tally.replayed, tally.refused, tally.answered) == (3, 1, 2)


def test_a_full_queue_refuses() -> None:
    demand = Script([(0.0, [turn(number, output=50)]) for number in range(5)])
    tally = replay(demand, gate=GateRules(most=1, queued=2))
    assert (tally.refused, tally.answered) == (2, 3)


def test_live_conversations_keep_their_number() -> None:
    policy = Told()
    demand = Script([(0.0, [turn(number, output=20)] * 3) for number in range(30)], concurrency=5)
    tally = replay(demand, policy, replicas=2)
    assert tally.replayed == 90
    # The one that asks is not counted yet, and is one of the five.
    assert {sum(seen) for seen in policy.seen[5:60]} == {4}


def test_counted_are_requests_of_the_steady_time() -> None:
    script = [(float(at), [turn(at, output=5), turn(at, 77, output=5, delay=4.0)]) for at in range(20)]
    demand = Script(script, settles=5.5)
    tally = replay(demand)
    # First turns come at 6 to 19, second ones from 4 s after: those between 5.5 and 19.
    assert tally.replayed == 40
    assert tally.requests == tally.answered == 14 + 13
    assert (tally.began, tally.closed) == (5.5, 19.0)
    assert len(tally.ttft) == 27


def test_conversations_are_made_while_they_are_taken() -> None:
    demand = Script([(float(at), [turn(at)]) for at in range(50)])
    run = Timed(TimedOptions(replicas=1, kv_blocks=100), demand, Taken(demand)).run()
    assert run.answered == 50


class Taken(RoundRobin):
    """Checks at each choice that no conversation further than the next has been made."""

    def __init__(self, demand: Script) -> None:
        super().__init__()
        self.demand = demand

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        assert len(self.demand.taken) == min(50, int(view.now) + 2)
        return super().pick(request, view)


def test_a_request_that_fits_no_cache_is_said() -> None:
    with pytest.raises(ReplayError, match="42 tokens does not fit into a KV cache of 32"):
        replay(Script([(0.0, [turn(1, 2)])]), kv_blocks=2)


@pytest.mark.parametrize("name", [*POLICIES, *BASELINES])
def test_every_policy_serves_everyone_the_same_each_time_and_leaves_no_count(name: str) -> None:
    def run() -> Tally:
        workload = Workload(WORKLOADS["agents"], WorkloadOptions(requests=250, replicas=3))
        policy = {**POLICIES, **BASELINES}[name]()
        rules = GateRules(most=8, seconds=0.0)
        timed = Timed(TimedOptions(replicas=3, gate=rules), workload, policy, seed=5)
        tally = timed.run()
        assert tally.replayed == 250
        assert not any(timed.counts())
        return tally

    one, other = run(), run()
    assert list(one.ttft) == list(other.ttft)
    assert list(one.uncached) == list(other.uncached)


def test_fewest_outstanding_keeps_up_where_round_robin_piles_up() -> None:
    """Every other request is long: in turn, one of two replicas gets all the long ones."""
    script = [(at * 0.05, [turn(at, output=300 if at % 2 else 3)]) for at in range(200)]
    in_turn, fewest = (
        replay(Script(script), policy, replicas=2) for policy in (RoundRobin(), LeastOutstanding())
    )
    assert max(fewest.itl) < max(in_turn.itl) * 0.8


def test_a_small_bound_costs_knowledge_and_holds() -> None:
    def tally(most_bytes: int) -> Tally:
        demand = Workload(WORKLOADS["chat"], WorkloadOptions(requests=1500))
        return Timed(TimedOptions(replicas=4), demand, PrefixCache(most_bytes)).run()

    much, little = tally(2**28), tally(20_000)

    assert much.cut == 0
    assert little.cut > 0
    assert 0 < little.remembered <= 20_000 < much.remembered
    assert much.recall is not None
    assert much.recall > 0.7
    assert little.expected_tokens < 0.9 * much.expected_tokens
    assert little.hit_ratio < much.hit_ratio
