"""Requests that do not meet what was cached for them."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.checks.balance import BY_KEY, policies_with_hot_keys
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import number, percent

KEYED = 20
"""Requests with a key that was seen before, below which a share says nothing."""

SPILLED = 0.25
"""Share sent elsewhere for load from which on the cache of these keys is wasted: at even load one in ten may
come at a crowded moment."""

REHASHED = 0.1
"""Share whose replica had gone: none, while the fleet stays as it is."""


def affinity_lost(case: Case) -> Iterator[Verdict]:
    """Keys that had a replica are served by others."""
    window = case.window
    hot = policies_with_hot_keys(case)
    for policy in sorted(window.growths("policy", "affinity_total")):
        results = window.growths("result", "affinity_total", policy=policy)
        hit, spill, rehash = (results.get(result, 0.0) for result in ("hit", "spill", "rehash"))
        if policy not in BY_KEY:
            spill = 0.0
        known = hit + spill + rehash
        if known < KEYED:
            continue
        if rehash >= REHASHED * known:
            yield Verdict(
                "affinity_lost",
                Side.ELSEWHERE,
                "Sessions and prefixes have lost their replicas",
                (
                    (
                        f"{number(rehash)} of {number(known)} requests with a known key under {policy} "
                        f"({percent(rehash / known)}) went elsewhere: theirs is gone or out of order"
                    ),
                ),
                "keep the fleet as it is while you measure; see `replicarouter replicas list` for who left",
            )
        elif spill >= SPILLED * known and policy not in hot:
            yield Verdict(
                "affinity_lost",
                Side.ELSEWHERE,
                "Load sends sessions and prefixes away from their replicas",
                (
                    (
                        f"{number(spill)} of {number(known)} requests with a known key under {policy} "
                        f"({percent(spill / known)}) were sent elsewhere for load"
                    ),
                ),
                "policy_options.load_factor: raise it (1.25 unless set) to let a replica have more above the "
                "mean, or spread what uses one key over several",
                setting="policy_options.load_factor",
            )
