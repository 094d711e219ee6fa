"""Many replays: each policy under each load with each seed, one after the other or in several processes."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from time import perf_counter

from replicarouter.policies import POLICIES
from replicarouter.policies.base import Policy
from replicarouter.replay.baselines import BASELINES
from replicarouter.replay.demand import Demand, digest
from replicarouter.replay.figures import Figures, Slo
from replicarouter.replay.timed import Timed, TimedOptions
from replicarouter.replay.trace import TraceOptions, read_trace
from replicarouter.replay.untimed import Untimed, UntimedOptions
from replicarouter.replay.workers import NEWS_DELAY, Workers
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.replay.workloads.base import Workload, WorkloadOptions
from replicarouter.settings import PolicyOptions

PLAYERS: dict[str, type[Policy]] = {**POLICIES, **BASELINES}
"""Every policy that can be replayed."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where demand comes from: a trace's file, or else a workload's name."""

    trace: Path | None
    workload: str
    trace_options: TraceOptions
    workload_options: WorkloadOptions

    def make(self, load: float) -> Demand:
        """The demand at `load` times the usual rate; raises `TraceError`."""
        if self.trace is None:
            return Workload(WORKLOADS[self.workload], replace(self.workload_options, load=load))
        options = self.trace_options
        faster = replace(options, speedup=options.speedup * load, rate=options.rate * load)
        return read_trace(self.trace, faster)


@dataclass(frozen=True, slots=True)
class Router:
    """How many workers it has, and after how many seconds one hears what another has learned."""

    workers: int = 1
    news_delay: float = NEWS_DELAY


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is replayed, and how: `mode` says by its type whether there is time."""

    source: Source
    mode: TimedOptions | UntimedOptions
    policies: Sequence[str]
    loads: Sequence[float]
    seeds: int
    policy_options: PolicyOptions
    slo: Slo
    router: Router = field(default_factory=Router)


@dataclass(frozen=True, slots=True)
class Run:
    """One replay and its figures."""

    policy: str
    load: float
    seed: int
    figures: Figures


def run(campaign: Campaign, jobs: int = 1) -> Iterator[Run]:
    """Replay everything, in `jobs` processes; the runs as they end, in their order by load, seed and policy.
    Raises `TraceError` and `ReplayError`."""
    cells = list(product(campaign.loads, range(1, campaign.seeds + 1), campaign.policies))
    if jobs <= 1 or len(cells) == 1:
        for load, seed, policy in cells:
            yield _replay(campaign, load, seed, policy)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(cells)), mp_context=context) as pool:
        pending = [pool.submit(_replay, campaign, *cell) for cell in cells]
        try:
            for future in pending:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _replay(campaign: Campaign, load: float, seed: int, name: str) -> Run:
    demand = campaign.source.make(load)
    policy = _policy(campaign, name, seed)
    began = perf_counter()
    mode = campaign.mode
    if isinstance(mode, UntimedOptions):
        tally = Untimed(mode, demand, policy, seed).run()
    else:
        tally = Timed(mode, demand, policy, seed).run()
    tally.wall = perf_counter() - began
    return Run(name, load, seed, Figures.of(tally, campaign.slo))


def _policy(campaign: Campaign, name: str, seed: int) -> Policy:
    make, options, router = PLAYERS[name].of, campaign.policy_options, campaign.router
    if router.workers == 1:
        return make(options)
    policies = [make(options) for _ in range(router.workers)]
    random = Random(digest(seed, router.workers))
    return Workers(policies, campaign.mode.replicas, router.news_delay, random)
