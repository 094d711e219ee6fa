"""Finds replicas that have our requests and do nothing, whatever their probes say: a server in front of a
frozen engine answers them, and one that has closed its port may leave open responses hanging for ever.
What should move are the bytes of responses and the engine's own step counter."""

from dataclasses import dataclass
from enum import Enum

from replicarouter.fleet.replica import Replica
from replicarouter.fleet.work import Work


class Finding(Enum):
    """What a look at a replica finds."""

    NOTHING = "nothing new"
    STALLED = "stalled"
    STILL_STALLED = "stalled before, and still"
    ALIVE = "stalled before, and moves again"


@dataclass(slots=True)
class Silence:
    """`since` when nothing has moved, and the step counter then; `stalled` once it was found to be."""

    since: float
    steps: float | None
    stalled: bool = False

    def broken_by(self, steps: float | None, heard_at: float) -> bool:
        """Whether the engine has stepped, or begun to count anew, or a byte has come."""
        if heard_at > self.since:
            return True
        return steps is not None and self.steps is not None and steps != self.steps

    def goes_on(self, steps: float | None, *, probe_failing: bool) -> bool:
        """Whether the engine is known to do nothing; else it may just be slow."""
        return probe_failing or (steps is not None and steps == self.steps)


class StallJudge:
    """Judges by looks at short intervals. `after` and `end` are seconds of silence, 0 for never, after which
    a replica is stalled and its requests are given up; a reading older than `fresh` seconds says nothing."""

    def __init__(self, *, after: float, end: float, fresh: float) -> None:
        self._after = after
        self._end = end
        self._fresh = fresh
        self._silences: dict[Replica, Silence] = {}

    def look(self, replica: Replica, work: Work, now: float) -> Finding:
        """Judge `replica` by those of its requests that could go on, and belong to its present engine.

        Stalled: for `after` seconds it had such requests, no byte came, and all the while its steps stood
        still or its probes failed. Where neither is known to be so, it may just be slow.
        """
        steps = self._steps(replica, now)
        silence = self._silences.get(replica)
        if silence is None:
            if work.current and self._after:
                self._silences[replica] = Silence(now, steps)
            return Finding.NOTHING
        if silence.broken_by(steps, max(replica.heard_at, work.heard_at)):
            del self._silences[replica]
            return Finding.ALIVE if silence.stalled else Finding.NOTHING
        if silence.stalled:
            return Finding.STILL_STALLED
        if not work.current:
            del self._silences[replica]
        elif not silence.goes_on(steps, probe_failing=replica.probe_failing):
            silence.since, silence.steps = now, steps
        elif now - silence.since >= self._after:
            silence.stalled = True
            return Finding.STALLED
        return Finding.NOTHING

    def _steps(self, replica: Replica, now: float) -> float | None:
        reading = replica.fresh_reading(now, self._fresh)
        return None if reading is None else reading.engine.steps

    def is_hopeless(self, replica: Replica, now: float) -> bool:
        """Whether nobody will answer its requests: it has been stalled for `end` seconds."""
        silence = self._silences.get(replica)
        return (
            bool(self._end) and silence is not None and silence.stalled and now - silence.since >= self._end
        )

    def forget(self, replica: Replica) -> None:
        """Begin anew with it: it gets another chance, or has left the fleet."""
        self._silences.pop(replica, None)
