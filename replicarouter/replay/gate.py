"""Admission in virtual time: who goes at once, who waits for room, and who is refused."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View, Wait
from replicarouter.replay.fleet import ReplayFleet
from replicarouter.replay.job import Job


@dataclass(frozen=True, slots=True)
class GateRules:
    """Most outstanding requests of each replica (0: no limit), most that may wait, and for how many
    seconds (0: for ever)."""

    most: int = 0
    queued: int = 10_000
    seconds: float = 60.0


class Gate:
    """Requests wait in one queue for the next replica with room, in the order of their coming; one whose
    policy says to `Wait` stands in the line of that replica, holds up nobody, and after those seconds
    goes to the head of the queue.

    `later(moment, job)` asks for `remind(job, moment)` to be called then.
    """

    def __init__(
        self,
        rules: GateRules,
        fleet: ReplayFleet,
        policy: Policy,
        random: Random,
        later: Callable[[float, Job], None],
    ) -> None:
        self._rules = rules
        self._fleet = fleet
        self._policy = policy
        self._random = random
        self._later = later
        self._queue: OrderedDict[Job, None] = OrderedDict()
        self._lines: dict[Replica, OrderedDict[Job, None]] = {}
        self.waiting = 0

    def admit(self, job: Job, now: float) -> bool:
        """A request has come: whether it goes at once, to `job.replica`. If not, it waits in `job.line`,
        or is refused when that is None."""
        choice = self._ask(job, now) if not self._queue else None
        if isinstance(choice, Replica):
            job.replica = choice
            return True
        if self.waiting >= self._rules.queued:
            return False
        self.waiting += 1
        self._line_up(job, choice, now)
        if self._rules.seconds:
            self._later(now + self._rules.seconds, job)
        return False

    def next_for(self, replica: Replica, now: float) -> Job | None:
        """The next request to go now that `replica` has room, with `job.replica` chosen, which may be
        another; None when nobody can go."""
        while self._fleet.candidates and self._queue:
            job = next(iter(self._queue))
            own = next(iter(self._lines.get(replica, ())), None)
            if own is not None and own.came < job.came:
                break
            if self._offer(job, now):
                return job
        for job in list(self._lines.get(replica, ())):
            if replica.has_room and self._offer(job, now):
                return job
        return None

    def remind(self, job: Job, now: float) -> bool:
        """A time asked for has come: whether the request goes now, to `job.replica`. If not, it still waits
        in `job.line`, or has been refused when that is None."""
        if self._rules.seconds and now >= job.came + self._rules.seconds:
            self._leave(job)
            return False
        if job.line is self._queue:
            return False  # It has been let into the queue already.
        if self._offer(job, now):
            return True
        if job.line is not self._queue and not self._fleet.candidates:
            self._unline(job)
            job.line = self._queue
            self._queue[job] = None
            self._queue.move_to_end(job, last=False)
        return False

    def _offer(self, job: Job, now: float) -> bool:
        choice = self._ask(job, now)
        if isinstance(choice, Replica):
            job.replica = choice
            self._leave(job)
            return True
        if choice is not None:
            self._unline(job)
            self._line_up(job, choice, now)
        return False

    def _ask(self, job: Job, now: float) -> Replica | Wait | None:
        """What the policy says; None when no replica has room."""
        fleet = self._fleet
        candidates = fleet.candidates
        if not candidates:
            return None
        view = View(fleet.replicas, candidates, now, self._random, now - job.came)
        return self._policy.pick(job.request, view)

    def _line_up(self, job: Job, wait: Wait | None, now: float) -> None:
        if wait is None:
            job.line = self._queue
        else:
            job.line = self._lines.setdefault(wait.replica, OrderedDict())
            self._later(now + wait.seconds, job)
        job.line[job] = None

    def _unline(self, job: Job) -> None:
        assert job.line is not None
        del job.line[job]
        job.line = None

    def _leave(self, job: Job) -> None:
        self._unline(job)
        self.waiting -= 1
