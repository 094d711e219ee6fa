"""Requests that queue in the router although engines have nothing waiting."""

from collections.abc import Iterator, Sequence

from replicarouter.diagnosis.case import Case, Member
from replicarouter.diagnosis.checks.connector import engines_idle, longest_wait
from replicarouter.diagnosis.course import Course
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, number, power_of_two

MOST_FULL = 0.8
"""Share of a pool's ready replicas at their limit from which on the limit is why requests queue: one that
returns to the pool may be given a single request at a time."""

WAITS_FOR_ONE = "prefix-cache"
"""The policy that may hold a request for a replica that is full."""


def admission_limit(case: Case) -> Iterator[Verdict]:
    """The router lets replicas have no more requests, which their engines would take."""
    for pool in case.pools:
        queued = case.queued_for(pool)
        members = pool.takers
        if not members or not case.held(queued) or case.busy(members):
            continue
        full = [member for member in members if member.at_limit]
        if len(full) >= MOST_FULL * len(members) or (full and WAITS_FOR_ONE in pool.policies):
            yield _limited(case, full, queued)
        else:
            yield _without_limit(case, members, queued)


def _limited(case: Case, full: Sequence[Member], queued: Course) -> Verdict:
    limits = {member.limit for member in full}
    now = " or ".join(number(limit) for limit in sorted(limits))
    wanted = max(case.accepted.median, case.expected.concurrency or 0) / len(full)
    enough = power_of_two(max([wanted, *(member.max_num_seqs or 0 for member in full)]))
    own = len(limits) > 1
    setting = "replicas[].max_outstanding" if own else "admission.max_outstanding_per_replica"
    flag = "" if own else " (--max-outstanding)"
    return Verdict(
        "admission_limit",
        Side.ROUTER,
        "The router's limit of outstanding requests holds requests back",
        (
            (
                f"queued {number(queued.median)} of {number(case.accepted.median)} in flight; running "
                f"{number(case.running)}"
            ),
            f"{counted(len(full), 'replica')} with as many outstanding as allowed: {now}",
            engines_idle(case),
            *longest_wait(case),
        ),
        f"{setting}: now {now}; set it to {_wanted(case, enough, flag)}",
        setting=setting,
    )


def _wanted(case: Case, enough: int, flag: str) -> str:
    if case.window.growth("shed_total", reason="queue_full"):
        return f"0 for no limit{flag}: the queue is full, so that nobody knows how many want in"
    return f"at least {enough}{flag}, or 0 for no limit"


def _without_limit(case: Case, members: Sequence[Member], queued: Course) -> Verdict:
    outstanding = sum(member.typical for member in members)
    return Verdict(
        "queue_held",
        Side.ROUTER,
        "Requests queue in the router although ready replicas are below their limits",
        (
            (
                f"queued {number(queued.median)}; {number(outstanding)} outstanding on "
                f"{counted(len(members), 'ready replica')}"
            ),
            engines_idle(case),
            *longest_wait(case),
        ),
        "see `replicarouter replicas list`: a replica that is back from an ejection gets one request at a "
        "time until one has succeeded",
    )
