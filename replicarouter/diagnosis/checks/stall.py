"""A replica that has requests and does nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _Signs:
    """What speaks against one replica: the router's own finding, seconds without a byte, whether its steps
    stood still (None: nobody knows), and seconds for which its `/metrics` have not answered, 0 if they do."""

    judged: bool
    silence: float
    frozen: bool | None
    mute: float

    @property
    def enough(self) -> bool:
        """Whether they say that it does nothing."""
        if self.judged or self.frozen is False:
            return self.judged
        return self.silence >= (SILENT if self.frozen or self.mute else SILENT_UNSEEN)


def stalled_replica(case: Case) -> Iterator[Verdict]:
    """The router has found it so, or its step counter stands still while no byte comes."""
    for member, signs in _signs(case):
        if not signs.enough or not (signs.judged or member.with_engine.floor >= 1):
            continue
        yield Verdict(
            "stalled_replica",
            Side.ELSEWHERE,
            f"Replica {member.name} has requests and does nothing",
            tuple(_evidence(case, member, signs)),
            f"restart its engine; `replicarouter replicas drain {member.name}` lets nothing new in "
            "until then. Requests that stay silent for health.stall_end are ended with an error",
            replica=member.name,
        )


def _evidence(case: Case, member: Member, signs: _Signs) -> Iterator[str]:
    yield f"it has {counted(member.with_engine.last, 'request')}"
    if signs.silence:
        yield f"no byte of an answer has come for {seconds(signs.silence)}"
    if signs.frozen:
        yield f"its engine made no step in the whole window of {length(case.window.seconds)}"
    if signs.mute:
        yield f"its `/metrics` has not answered for {seconds(signs.mute)} either"
    if signs.judged:
        yield f"the router has found it stalled; its state is {member.state}"


def _signs(case: Case) -> Iterator[tuple[Member, _Signs]]:
    """Of each replica; every series is gone through once for all of them."""
    last, judged = case.window.last, stalled_now(case)
    silences = last.by("replica", "replica_silence_seconds")
    ages = last.by("replica", "engine_scrape_age_seconds")
    steps = case.window.courses("replica", "engine_steps_total")
    for member in case.members:
        age = ages.get(member.name, 0.0)
        yield (
            member,
            _Signs(
                judged=member.name in judged,
                silence=silences.get(member.name, 0.0),
                frozen=_frozen(case, member, steps.get(member.name)),
                mute=age if member.running is None and age >= SILENT else 0.0,
            ),
        )


def _frozen(case: Case, member: Member, steps: Course | None) -> bool | None:
    """Whether its steps stood still over the window; None where nobody knows."""
    window = case.window
    if window.seconds < SHORTEST or member.running is None:
        return None
    if steps is None or len(steps.values) < len(window.snapshots):
        return None
    return len(set(steps.values)) == 1
