"""Campaigns: who is replayed, how often, and that processes change nothing."""

from dataclasses import replace

from replicarouter.policies import POLICIES
from replicarouter.replay.baselines import BASELINES
from replicarouter.replay.campaign import PLAYERS, Campaign, Run, Source, run
from replicarouter.replay.figures import Figures, Slo
from replicarouter.replay.timed import TimedOptions
from replicarouter.replay.trace import TraceOptions
from replicarouter.replay.untimed import UntimedOptions
from replicarouter.replay.workloads.base import WorkloadOptions
from replicarouter.settings import PolicyOptions

SOURCE = Source(None, "shared-prefix", TraceOptions(), WorkloadOptions(requests=120, replicas=2))
CAMPAIGN = Campaign(
    SOURCE, TimedOptions(replicas=2), ("round-robin", "smg-like"), (0.5, 2.0), 2, PolicyOptions(), Slo()
)


def same(figures: Figures) -> Figures:
    return replace(figures, wall=0.0)


def test_each_policy_is_replayed_under_each_load_with_each_seed() -> None:
    runs = list(run(CAMPAIGN))
    assert [(one.load, one.seed, one.policy) for one in runs] == [
        (load, seed, policy)
        for load in (0.5, 2.0)
        for seed in (1, 2)
        for policy in ("round-robin", "smg-like")
    ]
    # The same demand for all policies, more of it in the same time at a higher load.
    by_load: dict[float, list[Run]] = {}
    for one in runs:
        by_load.setdefault(one.load, []).append(one)
    assert all(one.figures.replayed == 120 for one in runs)
    assert max(one.figures.seconds for one in by_load[2.0]) < min(one.figures.seconds for one in by_load[0.5])


def test_processes_change_nothing_but_the_time_it_takes() -> None:
    alone, together = (list(run(replace(CAMPAIGN, seeds=1), jobs)) for jobs in (1, 2))
    assert [same(one.figures) for one in alone] == [same(one.figures) for one in together]


def test_an_untimed_campaign_has_hits_and_no_latency() -> None:
    campaign = replace(CAMPAIGN, mode=UntimedOptions(2, 500), loads=(1.0,), seeds=1)
    for one in run(campaign):
        assert one.figures.hit_ratio > 0.5
        assert one.figures.ttft.p50 is None


def test_every_policy_of_the_router_can_be_replayed() -> None:
    assert set(PLAYERS) == set(POLICIES) | set(BASELINES)
