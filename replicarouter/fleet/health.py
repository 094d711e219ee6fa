"""What the requests say of the replicas: who is set aside, who returns, who is preferred less."""

import logging

from replicarouter.clock import Clock, Seldom
from replicarouter.fleet.cooling import Cooling
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.outliers import Outliers
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import STALE_AFTER_INTERVALS, Replica
from replicarouter.fleet.stall import Finding, StallJudge
from replicarouter.fleet.work import NOTHING, Floor, OwnFloor, Work
from replicarouter.settings import Settings

log = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two calls of `tick`."""

LOOK = 1.0
"""Seconds between two looks at all requests of this process for replicas that have stalled. With hundreds of
streams, whose state is in no cache of the processor's, one takes a millisecond."""

LOOKS = 8
"""The least number of looks in the time after which a replica is stalled."""


class Health(FleetListener):
    """The verdicts. `now` is in seconds on the router's clock.

    A replica that fails `eject.consecutive_failures` requests in a row is ejected for a time that grows
    with each ejection. It returns on trial, with one request at a time: an answer lets it in, a failure
    ejects it again, for longer. Whoever comes in, new or back, starts slowly. How many of a pool may be
    out is said in `Outliers.may_eject`. `floor` tells of the requests at work: those of this process, if it
    is not given.
    """

    def __init__(self, fleet: Fleet, settings: Settings, clock: Clock, floor: Floor | None = None) -> None:
        self._fleet = fleet
        self._floor = floor or OwnFloor(fleet, settings.health.stall_end)
        self._clock = clock
        self._slow_start = settings.health.slow_start
        self._outliers = Outliers(settings.eject)
        self._cooling = Cooling()
        self._spared = Seldom()
        self._stalls = StallJudge(
            after=settings.health.stall_after,
            end=settings.health.stall_end,
            fresh=STALE_AFTER_INTERVALS * settings.scrape.interval,
        )
        bounds = (settings.health.stall_after, settings.health.stall_end)
        self._look_every = min([LOOK, *(bound / LOOKS for bound in bounds if bound)])
        if floor is not None:
            # What workers have written is read fast, and when replicas were heard is known by that alone.
            self._look_every = 0.0
        self._look_at = 0.0

    # What happens to requests

    def answered(self, replica: Replica) -> None:
        """It gave an answer that speaks for it."""
        self._cooling.start_over(replica)
        record = self._outliers.record(replica)
        if record is not None:
            record.failures = 0
            self._prove(replica)

    def failed(self, replica: Replica, now: float, reason: str, *, leased_at: float | None = None) -> None:
        """It failed a request; `reason` is an error code, or a word for what the answer showed.

        A replica on trial is not judged by requests that were `leased_at` a time before the trial.
        """
        if replica.health is not State.READY:
            # Requests from before: that it is out has been said.
            return
        enough = self._outliers.failed(replica)
        if replica.trial:
            enough = leased_at is None or leased_at >= replica.tried_at
        if enough:
            self._eject(replica, now, reason)

    def busy(self, replica: Replica, now: float, retry_after: float | None) -> None:
        """It said that it has no room now, and perhaps for how many seconds."""
        self._cooling.busy(replica, now, retry_after)
        self._prove(replica)

    def leaving(self, replica: Replica, now: float) -> None:
        """Its engine said that it shuts down."""
        if replica.health is State.READY:
            self._eject(replica, now, "shutting_down")

    def remembers(self, replica: Replica) -> bool:
        """Whether something is held against it that an answer would clear."""
        record = self._outliers.record(replica)
        against = record is not None and (record.failures > 0 or record.unproven)
        return against or self._cooling.remembers(replica)

    # What happens in the fleet

    def ready(self, replica: Replica) -> None:
        """It takes requests: on trial after an ejection, slowly in any case."""
        now = self._clock()
        record = self._outliers.record(replica)
        if record is not None and record.unproven:
            record.failures = 0
            log.info("replica on trial", extra={"replica": replica.name, "ejections": record.ejections})
            replica.begin_trial(now)
            self._fleet.regroup()
        else:
            replica.start_slowly(now, self._slow_start)

    def removed(self, replica: Replica) -> None:
        """Forget it."""
        self._outliers.forget(replica)
        self._cooling.start_over(replica)
        self._stalls.forget(replica)

    # What time brings

    def tick(self, now: float) -> None:
        """Let those back whose time is over, judge trials and stalls. To be called each `TICK` seconds."""
        for replica in self._fleet.replicas:
            if replica.health is State.EJECTED and (now >= replica.ejected_until or self._missed(replica)):
                self._fleet.tell(replica, Event.RETURNED, "back from its ejection, on trial")
        if now >= self._look_at or any(replica.trial for replica in self._fleet.replicas):
            self._look_at = now + self._look_every
            self._look(now)

    def _look(self, now: float) -> None:
        """See how the requests at each replica get on."""
        works = self._floor.works()
        for replica in self._fleet.replicas:
            work = works.get(replica.name, NOTHING)
            if replica.trial:
                self._look_at_trial(replica, work)
            self._look_for_stall(replica, work, now)

    def _missed(self, replica: Replica) -> bool:
        """Whether a pool of it has nobody else any more: the others have failed since it was ejected."""
        return any(not pool.ready and replica in pool.replicas for pool in self._fleet.pools.values())

    def _look_at_trial(self, replica: Replica, work: Work) -> None:
        record = self._outliers.record(replica)
        if record is None:
            return
        replica.narrow_trial(work.at_work - work.tried)
        if work.spoke:
            record.failures = 0
            self._prove(replica)

    def _look_for_stall(self, replica: Replica, work: Work, now: float) -> None:
        match self._stalls.look(replica, work, now):
            case Finding.STALLED:
                self._take_out_stalled(replica, now)
            case Finding.ALIVE:
                replica.stalled = False
                log.info("replica stall over", extra={"replica": replica.name})
            case Finding.STILL_STALLED if not work.waiting:
                self._try_stalled(replica, now)
        if work.waiting:
            self._floor.give_up(replica, now, everything=self._stalls.is_hopeless(replica, now))

    def _take_out_stalled(self, replica: Replica, now: float) -> None:
        replica.ejected_until = now + self._outliers.sentence(replica, now)
        replica.stalled = True
        replica.end_trial()
        self._fleet.ledger.ejections.add((replica.name, "stalled"))
        sign = "failed probes" if replica.probe_failing else "no step of its engine"
        was_out = replica.health is State.UNHEALTHY
        self._fleet.tell(replica, Event.STALLED, f"stalled: requests, but no byte and {sign}")
        if was_out:
            log.warning("replica stalled", extra={"replica": replica.name, "why": replica.why})

    def _try_stalled(self, replica: Replica, now: float) -> None:
        """Nothing of ours is there that could show life: after a while, a request has to."""
        if replica.probe_failing or now < replica.ejected_until or replica.health is not State.UNHEALTHY:
            return
        self._stalls.forget(replica)
        replica.stalled = False
        self._fleet.tell(replica, Event.PASSED, "probes pass after a stall, on trial")

    def _eject(self, replica: Replica, now: float, reason: str) -> None:
        on_trial = replica.trial
        if not self._outliers.may_eject(replica, self._fleet.pools.values()):
            if on_trial:
                # The others are out: it must do what it can, and not one request at a time.
                self._prove(replica)
            if self._spared.tell(now):
                facts = {"replica": replica.name, "reason": reason, "why": "its pool cannot do without it"}
                log.warning("replica not ejected", extra=facts)
            return
        seconds = self._outliers.sentence(replica, now)
        replica.ejected_until = now + seconds
        replica.end_trial()
        self._fleet.ledger.ejections.add((replica.name, reason))
        again = ", on trial after an ejection" if on_trial else ""
        self._fleet.tell(replica, Event.EJECTED, f"ejected for {seconds:g} s: {reason}{again}")

    def _prove(self, replica: Replica) -> None:
        record = self._outliers.record(replica)
        if replica.trial and record is not None:
            record.unproven = False
            log.info("replica trial over", extra={"replica": replica.name})
            replica.end_trial()
            self._fleet.regroup()
            self._fleet.wake(replica)
