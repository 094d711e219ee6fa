"""A replica that is slower than its peers at the same work."""

from collections.abc import Iterator
from statistics import median

from replicarouter.diagnosis.case import Case, Member
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.window import Mean
from replicarouter.diagnosis.words import number, seconds

SLOWER = 1.5
"""Times the gap between tokens of its peers: prompts that are computed in between make equal replicas differ
by a quarter over a few seconds."""

FELT = 0.003
"""Seconds by which the gap must be longer: below it nobody would notice, and the router's own turns count."""

GAPS = 30
"""Gaps below which their mean says nothing."""

LARGER = 1.5
"""Times the batch of its peers that excuses a longer gap, as far as it is in proportion: the time of a step
grows at most as its batch does."""


def slow_replica(case: Case) -> Iterator[Verdict]:
    """The mean gap between its tokens is longer than in the middle of its peers, for no larger batch."""
    means = {
        name: mean for name, mean in case.window.means("replica", "itl_seconds").items() if mean.count >= GAPS
    }
    told: set[str] = set()
    for pool in case.pools:
        measured = [member for member in pool.takers if member.name in means]
        for member in measured:
            peers = [peer for peer in measured if peer is not member]
            if not peers or member.name in told:
                continue
            typical = median(means[peer.name].seconds for peer in peers)
            batch = median(_batch(peer) for peer in peers)
            if _slow(means[member.name].seconds, typical, _batch(member), batch):
                told.add(member.name)
                yield _verdict(member, means[member.name], typical, batch)


def _batch(member: Member) -> float:
    return member.running.median if member.running is not None else member.with_engine.median


def _slow(gap: float, typical: float, batch: float, typical_batch: float) -> bool:
    if gap < SLOWER * typical or gap - typical < FELT:
        return False
    larger = batch / max(1.0, typical_batch)
    return larger <= LARGER or gap > larger * typical


def _verdict(member: Member, mean: Mean, typical: float, batch: float) -> Verdict:
    return Verdict(
        "slow_replica",
        Side.ELSEWHERE,
        f"Replica {member.name} is slower than its peers",
        (
            (
                f"{seconds(mean.seconds)} between tokens in the mean of {number(mean.count)} gaps; "
                f"{seconds(typical)} in the middle of its peers"
            ),
            f"it runs {number(_batch(member))}, they run {number(batch)}",
        ),
        "look at its GPU (clock, temperature, other processes on it) and its engine's settings; until then "
        "lower its weight or drain it",
        setting="replicas[].weight",
        replica=member.name,
    )
