"""Replicas that take no requests."""

from collections.abc import Iterator, Sequence

from replicarouter.diagnosis.case import DRAINING, Case, Member
from replicarouter.diagnosis.checks.stall import stalled_now
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, names, number

CURES = {
    "loading": "wait for it, or look at its engine's log: it answers and lists no model, or nothing yet",
    "unhealthy": "see `replicarouter replicas list` for why, and its engine's log",
    "ejected": "its requests failed: look at its engine's log; it is tried again by itself",
    DRAINING: "`replicarouter replicas undrain {name}` gives it requests again",
}


def no_replica(case: Case) -> Iterator[Verdict]:
    """A pool without any replica that takes requests. Of a page that was cut nobody knows what it lacks."""
    if not case.window.last.whole:
        return
    for pool in case.pools:
        if pool.takers or (not pool.members and len(case.pools) > 1):
            continue
        refused = case.window.growth("requests_total", outcome="no_replica")
        yield Verdict(
            "no_replica",
            Side.ELSEWHERE,
            f"No replica of {pool.model} takes requests" if pool.model else "No replica takes requests",
            (
                _states(pool.members) if pool.members else "the router knows no replica",
                *([f"{number(refused)} requests were refused for it"] if refused else []),
            ),
            "start the engines, or see `replicarouter replicas list` for why they are out",
        )


def replica_out(case: Case) -> Iterator[Verdict]:
    """Some replicas of a pool take nothing, the others have their load."""
    stalled = stalled_now(case)
    out = [
        member
        for pool in case.pools
        if pool.takers
        for member in pool.members
        if not member.takes and member.name not in stalled
    ]
    out = sorted(set(out), key=lambda member: member.name)
    if not out:
        return
    asked_for = all(member.state == DRAINING for member in out)
    ejections = case.window.growths("replica", "ejections_total")
    set_aside = sum(ejections.get(member.name, 0.0) for member in out)
    one = next((member for member in out if member.state != DRAINING), out[0])
    yield Verdict(
        "replica_out",
        Side.NOTE if asked_for else Side.ELSEWHERE,
        f"{counted(len(out), 'replica')} of {len(case.members)} "
        f"{'takes' if len(out) == 1 else 'take'} no requests",
        (
            _states(out),
            *([f"set aside {number(set_aside)} times within the window"] if set_aside else []),
        ),
        CURES.get(one.state, "see `replicarouter replicas list`").format(name=one.name),
        replica=one.name if len(out) == 1 else "",
    )


def _states(members: Sequence[Member]) -> str:
    by_state: dict[str, list[str]] = {}
    for member in members:
        by_state.setdefault(member.state, []).append(member.name)
    return "; ".join(f"{state}: {names(found)}" for state, found in sorted(by_state.items()))
