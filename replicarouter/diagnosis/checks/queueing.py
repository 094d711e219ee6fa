"""Requests that wait in the engines."""

from collections.abc import Iterator, Sequence

from replicarouter.diagnosis.case import Case, Member
from replicarouter.diagnosis.checks.kv_cache import KV_FULL
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, number, percent, power_of_two

NOTICEABLE = 0.05
"""Waiting in relation to running from which on it is a queue: a request that comes during a step waits for
the next one, so that some wait at any time."""

ONE_LOOK = 0.1
"""The same for a single page, which may show such a moment."""

BATCH_HAS_ROOM = 0.8
"""Share of a known `max_num_seqs` below which it is not what keeps requests waiting."""


def engine_queueing(case: Case) -> Iterator[Verdict]:
    """Most replicas have requests waiting all the time: the engines are what limits."""
    for pool in case.pools:
        members = pool.takers
        if not case.busy(members):
            continue
        queues = [member for member in members if member.queues]
        running = sum(member.running.median for member in members if member.running is not None)
        waiting = sum(member.waiting.median for member in queues if member.waiting is not None)
        queued = case.queued_for(pool)
        opening = _waiting_for_slots(case, members)
        here = queued.median + opening
        lasting = sum(member.waiting.floor for member in queues if member.waiting is not None) >= 1
        noticeable = NOTICEABLE if case.window.rates else ONE_LOOK
        held = case.held(queued) or (opening >= 1 and case.held(case.waiting_for_slot))
        if not held and not (lasting and waiting >= noticeable * running):
            continue
        yield _verdict(case, members, running, waiting, here)


def _waiting_for_slots(case: Case, members: Sequence[Member]) -> float:
    """Requests that have one of these replicas and no connection, when some wait for a slot."""
    if not case.waiting_for_slot.median:
        return 0.0
    return sum(member.typical - member.with_engine.median for member in members)


def _verdict(case: Case, members: Sequence[Member], running: float, waiting: float, here: float) -> Verdict:
    kv = max((member.kv.median for member in members if member.kv is not None), default=None)
    evidence = [
        (
            f"waiting in the engines: {number(waiting)}, running: {number(running)} on "
            f"{counted(len(members), 'ready replica')}"
        ),
        f"waiting in the router: {number(here)}" + (", behind them" if here else ""),
    ]
    if kv is not None:
        evidence.append(f"the fullest KV cache is used to {percent(kv)}")
    out = len(case.members) - len(case.takers)
    if out:
        evidence.append(f"{counted(out, 'replica')} of {len(case.members)} out of service")
    setting, cure = _cure(members, (running + waiting + here) / len(members), kv)
    return Verdict(
        "engine_queueing",
        Side.ELSEWHERE,
        "Requests queue in the engines",
        tuple(evidence),
        cure,
        setting=setting,
    )


def _cure(members: Sequence[Member], wanted: float, kv: float | None) -> tuple[str, str]:
    """The setting and what to do with it; `wanted` are the requests for each replica."""
    if kv is not None and kv >= KV_FULL:
        return "", "add replicas: their KV caches are full, so that a larger max_num_seqs would not help"
    batches = [member.running.median for member in members if member.running is not None]
    most = max(batches, default=0.0)
    allowed = max((member.max_num_seqs or 0.0 for member in members), default=0.0)
    if allowed and most < BATCH_HAS_ROOM * allowed:
        return "", (
            f"add replicas: engines run {number(most)} of the {number(allowed)} they may, so that it is the "
            "computing of prompts that others wait for"
        )
    now = number(allowed) if allowed else f"{number(most)}, as it seems"
    return "max_num_seqs", (
        f"max_num_seqs of the engines: now {now}; raise it to at least {power_of_two(wanted)} "
        "(--max-num-seqs) while the KV cache has room, or add replicas"
    )
