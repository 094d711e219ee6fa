"""The rule in the shape of llm-d's."""

from replicarouter.policies.base import Ending
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.baselines.llm_d_like import LONGEST_PENALTY, PEAK_PREFILL, LlmDLike
from replicarouter.replay.fleet import ReplayFleet
from tests.replay.scene import BLOCK, ask, view_of

TEN = tuple(range(10))


def served(policy: LlmDLike, fleet: ReplayFleet, number: int, request: InferenceRequest) -> None:
    replica = fleet.replicas[number]
    policy.sent(request, replica, 0.0)
    policy.began(request, replica, 1.0)
    policy.finished(request, replica, Ending("ok", 0, None, 0), 2.0)


def queued(policy: LlmDLike, fleet: ReplayFleet, number: int, seconds: float) -> None:
    blocks = int(seconds * PEAK_PREFILL / BLOCK)
    policy.sent(ask(*range(10**6, 10**6 + blocks)), fleet.replicas[number], 0.0)


def test_who_holds_four_fifths_keeps_the_prompt_until_it_is_saturated() -> None:
    policy, fleet = LlmDLike(), ReplayFleet(4)
    served(policy, fleet, 2, ask(*TEN))
    queued(policy, fleet, 2, LONGEST_PENALTY - 1)
    request = ask(*TEN)
    assert policy.pick(request, view_of(fleet)) is fleet.replicas[2]
    assert request.affinity == "hit"
    queued(policy, fleet, 2, 0)
    policy.sent(ask(*range(9_000, 9_000 + int(2 * PEAK_PREFILL / BLOCK))), fleet.replicas[2], 0.0)
    request = ask(*TEN)
    assert policy.pick(request, view_of(fleet)) is not fleet.replicas[2]
    assert request.affinity == "spill"


def test_less_than_that_is_worth_its_tokens_only() -> None:
    policy, fleet = LlmDLike(), ReplayFleet(4)
    served(policy, fleet, 2, ask(*TEN))
    half = ask(*TEN[:5], *range(50, 55))
    assert policy.pick(half, view_of(fleet)) is fleet.replicas[2]
    policy.sent(ask(*range(200, 206)), fleet.replicas[2], 0.0)
    assert policy.pick(ask(*TEN[:5], *range(60, 65)), view_of(fleet)) is not fleet.replicas[2]


def test_tokens_of_a_prompt_weigh_until_its_first_token_and_of_an_answer_until_its_end() -> None:
    policy, fleet = LlmDLike(), ReplayFleet(2)
    learnt = ask(1)
    policy.sent(learnt, fleet.replicas[0], 0.0)
    policy.finished(learnt, fleet.replicas[0], Ending("ok", 16, 0, 100), 1.0)
    request = ask(*TEN)
    replica = fleet.replicas[1]
    policy.sent(request, replica, 2.0)

    def tokens() -> float:
        return policy.explain(ask(99), view_of(fleet))[replica.name]["tokens"]

    assert tokens() == 10 * BLOCK + 100
    policy.began(request, replica, 3.0)
    assert tokens() == 100
    policy.finished(request, replica, Ending("ok", 160, 0, 100), 4.0)
    assert tokens() == 0


def test_cold_prompts_go_where_the_last_one_is_longest_ago() -> None:
    policy, fleet = LlmDLike(), ReplayFleet(3)
    chosen = []
    for number in range(6):
        request = ask(number * 100, number * 100 + 1)
        replica = policy.pick(request, view_of(fleet))
        chosen.append(fleet.numbers[replica])
        served(policy, fleet, chosen[-1], request)
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_a_removed_replica_holds_nothing() -> None:
    policy, fleet = LlmDLike(), ReplayFleet(2)
    request = ask(*TEN)
    policy.sent(request, fleet.replicas[1], 0.0)
    policy.removed(fleet.replicas[1])
    policy.finished(request, fleet.replicas[1], Ending("ok"), 1.0)
    assert policy.pick(ask(*TEN), view_of(fleet)) is fleet.replicas[0]
