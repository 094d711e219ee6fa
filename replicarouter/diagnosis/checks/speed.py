"""A replica that is slower than its peers at the same work."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

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
        gaps = sorted(means[member.name].seconds for member in measured)
        batches = sorted(map(_batch, measured))
        for member in measured:
            if len(measured) < 2 or member.name in told:
                continue
            typical = _median_of_others(gaps, means[member.name].seconds)
            batch = _median_of_others(batches, _batch(member))
            if _slow(means[member.name].seconds, typical, _batch(member), batch):
                told.add(member.name)
                yield _verdict(member, means[member.name], typical, batch)


def _median_of_others(ordered: Sequence[float], own: float) -> float:
    """The median of two or more values in order without `own`, which is one of them."""
    place, left = bisect_left(ordered, own), len(ordered) - 1
    low, high = ((left - 1) // 2, left // 2)
    return (ordered[low + (low >= place)] + ordered[high + (high >= place)]) / 2


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
                f"{seconds(mean.seconds)} between tokens (mean of {number(mean.count)}); its peers "
                f"{seconds(typical)}"
            ),
            f"it runs {number(_batch(member))}, they run {number(batch)}",
        ),
        "look at its GPU (clock, temperature, other processes on it) and its engine's settings; until then "
        "drain it or lower its weight",
        replica=member.name,
    )
