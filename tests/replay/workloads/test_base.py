"""What all workloads have in common."""

from itertools import chain, pairwise
from random import Random
from statistics import fmean

import pytest

from replicarouter.replay.demand import Turn
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.replay.workloads.base import Workload, WorkloadOptions, long_tailed

every_workload = pytest.mark.parametrize("name", WORKLOADS)


def talks(name: str, seed: int = 1, **options: float) -> list[tuple[float, list[Turn]]]:
    workload = Workload(WORKLOADS[name], WorkloadOptions(**{"requests": 600, **options}))  # type: ignore[arg-type]
    return [(one.at, list(one.turns)) for one in workload.conversations(seed)]


def turns(name: str, seed: int = 1, **options: float) -> list[Turn]:
    return list(chain.from_iterable(told for _, told in talks(name, seed, **options)))


@every_workload
def test_so_many_requests_are_made(name: str) -> None:
    assert len(turns(name, requests=601)) == 601


@every_workload
def test_the_same_seed_makes_the_same_requests(name: str) -> None:
    def facts(seed: int) -> list[tuple[object, ...]]:
        return [
            (one.prompt_tokens, one.output_tokens, tuple(one.blocks), one.delay) for one in turns(name, seed)
        ]

    assert facts(3) == facts(3) != facts(4)


@every_workload
def test_each_turn_begins_with_the_prompt_and_reply_before(name: str) -> None:
    for _, told in talks(name):
        for before, after in pairwise(told):
            assert after.prompt_tokens > before.prompt_tokens + before.output_tokens
            assert tuple(after.blocks[: len(before.final_blocks)]) == tuple(before.final_blocks)
            assert tuple(before.final_blocks[: len(before.blocks)]) == tuple(before.blocks)
            assert after.session == before.session


@every_workload
def test_blocks_are_those_that_are_full(name: str) -> None:
    size = WORKLOADS[name].block_tokens
    for one in turns(name):
        assert len(one.blocks) == one.prompt_tokens // size
        assert len(one.final_blocks) == (one.prompt_tokens + one.output_tokens) // size


@every_workload
def test_conversations_share_their_heads_only(name: str) -> None:
    """What one conversation says is found in no other: common blocks are common beginnings."""
    firsts = [told[0].blocks for _, told in talks(name)]
    for one, other in pairwise(firsts):
        common = [first == second for first, second in zip(one, other, strict=False)]
        assert common == sorted(common, reverse=True)
    sessions = {told[0].session for _, told in talks(name)}
    assert len(sessions) == len(firsts)


@pytest.mark.parametrize("name", [name for name, shape in WORKLOADS.items() if shape.rate])
def test_load_and_replicas_set_the_rate(name: str) -> None:
    def span(**options: float) -> float:
        amount = WorkloadOptions(requests=4000, **options)  # type: ignore[arg-type]
        return list(Workload(WORKLOADS[name], amount).conversations(1))[-1].at

    usual = span(replicas=4)
    assert span(replicas=8) == pytest.approx(usual / 2)
    assert span(replicas=4, load=4.0) == pytest.approx(usual / 4)
    # Requests a second, whatever the number of turns.
    assert span(rate=50.0) == pytest.approx(4000 / 50, rel=0.25)


def test_concurrency_takes_the_place_of_a_rate() -> None:
    shape = WORKLOADS["chat"]
    assert Workload(shape, WorkloadOptions()).concurrency == 0
    assert Workload(shape, WorkloadOptions(concurrency=30, load=1.5)).concurrency == 45
    live = WORKLOADS["live-long-head"]
    assert Workload(live, WorkloadOptions(replicas=8)).concurrency == 200
    assert Workload(live, WorkloadOptions(replicas=8, rate=9.0)).concurrency == 0


def test_a_short_workload_has_no_long_settling() -> None:
    shape = WORKLOADS["chat"]
    assert Workload(shape, WorkloadOptions(requests=10**6)).settles == shape.settles
    short = Workload(shape, WorkloadOptions(requests=100, rate=10.0))
    assert short.settles == pytest.approx(4.0)


def test_blocks_can_have_another_size() -> None:
    assert all(len(one.blocks) == one.prompt_tokens // 16 for one in turns("chat", block_tokens=16))


def test_long_tailed_numbers_have_their_mean_and_bounds() -> None:
    random = Random(1)
    values = [long_tailed(random, 100.0, 0.8, 5.0) for _ in range(20_000)]
    assert fmean(values) == pytest.approx(100, rel=0.05)
    assert (min(values) >= 1, max(values)) == (True, 500)
