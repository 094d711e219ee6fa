"""Load that is spread unevenly over a pool, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from replicarouter.diagnosis.case import DRAINING, MOST_BUSY, Case, Member, Pool
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import names, number, percent

BLIND = ("round-robin", "random")
"""Policies that do not look at what a replica has."""

BY_KEY = ("session", "prefix-hash")
"""Policies that place keys. `prefix-cache` spills whatever merely shares a beginning that everybody has, so
that its spills are no loss."""

STICKY = (*BY_KEY, "prefix-cache")
"""Policies under which one key can fill a replica."""

LEAST_QUEUE = 2
"""Requests that must wait in the middle of the window in one engine while others have none waiting: a single
one may just have come during a step."""

QUEUE_SHARE = 0.1
"""The same in relation to what it runs."""

CROWDED, EXCESS, DEVIATIONS = 2.0, 8, 5.0
"""Times the mean of the others, and requests and standard deviations above the mean of all, that a replica
has to have when nobody waits: under `random` chance alone makes counts differ, and one window in ten thousand
is so uneven."""

STARVED = 0.5
"""Share of the mean of the others below which a replica has room that they would need."""

ALIKE = 1.3
"""Times the load of others that is the same load: bounded loads allow 1.25 times the mean."""

CEILING, FREE = 1.15, 4
"""Times the mean, and requests at least, from which on a replica counts as at its bound under a sticky
policy: the bound is 1.25 times the mean, or 4."""

SPILLED, KEYED = 0.25, 20
"""Share of the requests with known keys that spill from which on a key is too hot, and how many there must be
to tell."""


@dataclass(frozen=True, slots=True)
class _Split:
    """The replicas that have too much of the load, and the others."""

    crowded: Sequence[Member]
    others: Sequence[Member]
    queueing: bool


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why, what to do about it, the setting for it, whose it is, and whether a few keys are too hot."""

    why: str
    cure: str
    setting: str = ""
    side: Side = Side.ELSEWHERE
    hot: bool = False


def load_imbalance(case: Case) -> Iterator[Verdict]:
    """One replica has requests waiting or far more than the others, which have room."""
    for _, split, cause in _uneven(case):
        yield _verdict(split, cause)


def policies_with_hot_keys(case: Case) -> frozenset[str]:
    """Those under which a few keys are the cause: that much of them is sent elsewhere is no other fault."""
    return frozenset(policy for pool, _, cause in _uneven(case) if cause.hot for policy in pool.policies)


def _uneven(case: Case) -> Iterator[tuple[Pool, _Split, _Cause]]:
    for pool in case.pools:
        members = pool.takers
        if len(members) < 2:
            continue
        if split := _queueing(members) or _starving(members) or _crowded(members):
            cause = _cause(case, pool, split)
        elif split := _hot(case, pool):
            cause = _hot_key(case, pool)
        else:
            continue
        if cause is not None:
            yield pool, split, cause


# Who has too much


def _queueing(members: Sequence[Member]) -> _Split | None:
    queues = [
        member
        for member in members
        if _always_queues(member, max(LEAST_QUEUE, QUEUE_SHARE * _running(member)))
    ]
    idle = [member for member in members if member.idle]
    if not queues or not idle or len(queues) > MOST_BUSY * len(members):
        return None
    return _Split(queues, idle, queueing=True)


def _starving(members: Sequence[Member]) -> _Split | None:
    queues = [member for member in members if _always_queues(member, LEAST_QUEUE)]
    if not queues:
        return None
    mean = _mean(queues)
    starved = [member for member in members if member.idle and member.typical <= STARVED * mean]
    return _Split(queues, starved, queueing=True) if starved else None


def _always_queues(member: Member, least: float) -> bool:
    """Whether so many usually wait in its engine, and some at nearly every look."""
    if not member.queues or member.waiting is None:
        return False
    return member.waiting.floor >= 1 and member.waiting.median >= least


def _crowded(members: Sequence[Member]) -> _Split | None:
    """Each against the others, by its weight: where weights differ, so shall the loads."""
    total = sum(map(_by_weight, members))
    for member in sorted(members, key=_by_weight, reverse=True):
        even = member.weight * total / len(members)
        theirs = member.weight * (total - _by_weight(member)) / (len(members) - 1)
        # Of requests that are thrown anywhere, a binomial count comes here.
        deviation = sqrt(max(0.0, even * (1 - 1 / len(members))))
        far = member.typical - even >= max(EXCESS, DEVIATIONS * deviation)
        if far and member.typical >= CROWDED * theirs and member.outstanding.floor > even:
            others = [other for other in members if other is not member]
            return _Split([member], others, queueing=False)
    return None


def _hot(case: Case, pool: Pool) -> _Split | None:
    """Under a sticky policy a replica at its bound, from which much is sent elsewhere."""
    policies = [policy for policy in pool.policies if policy in BY_KEY]
    if not policies or _spill_share(case, policies) < SPILLED:
        return None
    members = pool.takers
    bound = max(FREE, CEILING * _mean(members))
    at_bound = [member for member in members if member.typical >= bound]
    if not at_bound or len(at_bound) > MOST_BUSY * len(members):
        return None
    return _Split(at_bound, [member for member in members if member.typical < bound], queueing=False)


def _spill_share(case: Case, policies: Sequence[str]) -> float:
    known = spilled = 0.0
    for policy in policies:
        results = case.window.growths("result", "affinity_total", policy=policy)
        known += sum(results.get(result, 0.0) for result in ("hit", "spill", "rehash"))
        spilled += results.get("spill", 0.0)
    return spilled / known if known >= KEYED else 0.0


# Why


def _cause(case: Case, pool: Pool, split: _Split) -> _Cause | None:
    """None where other verdicts tell it."""
    crowded, others = split.crowded, split.others
    weights = {member.weight for member in pool.takers}
    if len(weights) > 1 and _mean_by_weight(crowded) <= ALIKE * _mean_by_weight(others):
        heavy = max(crowded, key=lambda member: member.weight)
        return _Cause(
            "it follows the weights: " + _weights([*crowded, *others]),
            f"replicas[].weight of {heavy.name}: now {heavy.weight:g}; lower it, or raise the others",
            "replicas[].weight",
            Side.ROUTER,
        )
    if _mean(crowded) <= ALIKE * _mean(others):
        return _smaller(crowded)
    if blind := [policy for policy in pool.policies if policy in BLIND]:
        return _Cause(
            f"the policy {blind[0]} does not look at what replicas have to do",
            f"policy: now {blind[0]}; set it to least-outstanding (--policy)",
            "policy",
            Side.ROUTER,
        )
    if (cause := _changed(case, pool, split)) is not None:
        return cause
    if any(policy in STICKY for policy in pool.policies):
        return _hot_key(case, pool)
    return _Cause(
        f"not the weights, and {' or '.join(pool.policies) or 'the policy'} looks at load",
        "see `GET /admin/decisions/{request_id}` for why requests go there",
    )


def _smaller(crowded: Sequence[Member]) -> _Cause | None:
    if any(member.unexplained is not None and member.unexplained.median < 0 for member in crowded):
        return None
    one = crowded[0]
    limit = "" if not one.max_num_seqs else f" (max_num_seqs {number(one.max_num_seqs)})"
    return _Cause(
        f"it has no more requests than the others, but runs {number(_running(one))} at once{limit}",
        f"replicas[].weight of {one.name}: now {one.weight:g}; lower it, or give its engine the same limits "
        "as the others",
        "replicas[].weight",
    )


def _changed(case: Case, pool: Pool, split: _Split) -> _Cause | None:
    """Replicas that are out, or were so a moment ago."""
    back = [member.name for member in split.others if member.ready < 1]
    ejected = case.window.growths("replica", "ejections_total")
    back += [member.name for member in split.others if ejected.get(member.name) and member.ready == 1]
    if back:
        return _Cause(
            f"{names(back)} came back within the window and gets its share slowly",
            "wait for health.slow_start to pass, or shorten it",
            "health.slow_start",
        )
    out = [member for member in pool.members if not member.takes]
    if not out:
        return None
    one = out[0]
    undrain = f"; `replicarouter replicas undrain {one.name}`" if one.state == DRAINING else ""
    return _Cause(
        f"what {names([member.name for member in out])} had goes to others: it is {one.state}",
        f"bring {one.name} back{undrain}",
    )


def _hot_key(case: Case, pool: Pool) -> _Cause:
    policy = next((one for one in pool.policies if one in STICKY), "")
    if policy == "prefix-cache":
        return _Cause(
            "many requests begin with what that replica has cached",
            "policy: now prefix-cache; least-outstanding would spread them, and compute their beginning "
            "everywhere",
            "policy",
            hot=True,
        )
    share = _spill_share(case, [policy])
    told = f" ({percent(share)} of the requests with a known key)" if share else ""
    keys = "sessions" if policy == "session" else "beginnings of prompts"
    return _Cause(
        f"a few keys make most of the load under {policy}: one replica is at its bound, and what is too "
        f"much for it is sent elsewhere{told}",
        f"spread that load over more {keys}; if it really is one, set policy to least-outstanding. Another "
        "load_factor only trades waiting at one replica for caches that are missed at others",
        hot=True,
    )


def _verdict(split: _Split, cause: _Cause) -> Verdict:
    found = [member.name for member in split.crowded]
    title = (
        "One replica has more than its share" if len(found) == 1 else "Some replicas have more than theirs"
    )
    evidence = [_loads("more", split.crowded), _loads("the others", split.others)]
    if split.queueing:
        waiting = sum(member.waiting.median for member in split.crowded if member.waiting is not None)
        evidence.append(f"{number(waiting)} wait there while others have nothing waiting")
    return Verdict(
        "load_imbalance",
        cause.side,
        title,
        (*evidence, f"cause: {cause.why}"),
        cause.cure,
        setting=cause.setting,
        replica=found[0] if len(found) == 1 else "",
    )


def _loads(label: str, members: Sequence[Member]) -> str:
    found = [f"{member.name} {number(member.typical)}" for member in members]
    return f"outstanding, {label}: {names(found)}"


def _weights(members: Sequence[Member]) -> str:
    return names([f"{member.name} {member.weight:g}" for member in members])


def _running(member: Member) -> float:
    return member.running.median if member.running is not None else 0.0


def _by_weight(member: Member) -> float:
    return member.typical / member.weight if member.weight > 0 else member.typical


def _mean(members: Sequence[Member]) -> float:
    return sum(member.typical for member in members) / len(members)


def _mean_by_weight(members: Sequence[Member]) -> float:
    return sum(map(_by_weight, members)) / len(members)
