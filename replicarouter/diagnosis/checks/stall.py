"""A replica that has requests and does nothing."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case, Member
from replicarouter.diagnosis.course import Course
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, length, seconds

SILENT = 3.0
"""Seconds without a byte for any of its requests, and without a step of the engine, from which on a replica
with requests is suspected: a step takes hundredths of a second, and an engine that computes a long prompt
still steps."""

SILENT_UNSEEN = 10.0
"""The same where the engine tells nothing of its steps: a long prompt alone can take seconds."""

SHORTEST = 1.5
"""Seconds of a window in which a step counter must have moved: readings may be a second old."""


def stalled_now(case: Case) -> frozenset[str]:
    """The replicas that the router itself has found stalled."""
    judged = case.window.last.by("replica", "replica_stalled")
    return frozenset(name for name, value in judged.items() if value)


def stalled_replica(case: Case) -> Iterator[Verdict]:
    """The router has found it so, or its step counter stands still while no byte comes."""
    found = stalled_now(case)
    silences = case.window.courses("replica", "replica_silence_seconds")
    steps = case.window.courses("replica", "engine_steps_total")
    for member in case.members:
        silence = silences[member.name].last if member.name in silences else 0.0
        frozen = _frozen(case, member, steps.get(member.name))
        judged = member.name in found
        limit = SILENT_UNSEEN if frozen is None else SILENT
        if not judged and (frozen is False or silence < limit or member.with_engine.floor < 1):
            continue
        evidence = [f"it has {counted(member.with_engine.last, 'request')}"]
        if silence:
            evidence.append(f"no byte of an answer has come for {seconds(silence)}")
        if frozen:
            evidence.append(f"its engine made no step in the whole window of {length(case.window.seconds)}")
        if judged:
            evidence.append(f"the router has found it stalled; its state is {member.state}")
        yield Verdict(
            "stalled_replica",
            Side.ELSEWHERE,
            f"Replica {member.name} has requests and does nothing",
            tuple(evidence),
            f"restart its engine; `replicarouter replicas drain {member.name}` lets nothing new in "
            "until then. Requests that stay silent for health.stall_end are ended with an error",
            replica=member.name,
        )


def _frozen(case: Case, member: Member, steps: Course | None) -> bool | None:
    """Whether its steps stood still over the window; None where nobody knows."""
    window = case.window
    if window.seconds < SHORTEST or member.running is None:
        return None
    if steps is None or len(steps.values) < len(window.snapshots):
        return None
    return len(set(steps.values)) == 1
