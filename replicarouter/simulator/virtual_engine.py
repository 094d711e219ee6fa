"""An engine in virtual time: a scheduler that is told how far time has come. No clock, no sockets."""

from math import inf

from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import Profile
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.sequences import Sequence


class VirtualEngine:
    """Submit sequences in the order of time, and `advance` to `next_event_at` or to any time before; after
    each of the two, ask for `next_event_at` again.

    What comes of a sequence is written on it: `cached_tokens`, `first_token`, `ended`, `preemptions`.
    `measures.token_gap` has all times between tokens; pass `measures` with finer bounds for percentiles.
    """

    def __init__(
        self, profile: Profile, *, max_num_seqs: int, blocks: KvBlocks, measures: Measures | None = None
    ) -> None:
        self.measures = measures or Measures()
        self.blocks = blocks
        self._scheduler = Scheduler(profile, max_num_seqs=max_num_seqs, blocks=blocks, measures=self.measures)
        self._step_due: float | None = None  # end of the step under way
        self._begin_at = 0.0  # of the next step, if there is anything to do
        self._started: list[Sequence] = []
        self._ended: list[Sequence] = []

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Sequences queued."""
        return self._scheduler.waiting

    @property
    def next_event_at(self) -> float:
        """Before this time no sequence has its first token or its end, whatever is submitted. There may be
        none at it either: then it is when a step begins or ends. Infinite when idle."""
        scheduler = self._scheduler
        if self._started or self._ended:  # seen when something was submitted, and not told yet
            return self._begin_at
        if self._step_due is not None:
            return self._step_due
        if steps := scheduler.even_steps():
            return self._begin_at + steps * scheduler.decode_seconds(scheduler.running)
        return self._begin_at if self._busy else inf

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence that arrives at `now`, which is not before any time told earlier. Those that
        arrive at the same time can join the same step. ValueError when it could never fit into the KV
        cache."""
        self._run(now, submitting=True)
        if not self._busy:
            self._begin_at = now
        self._scheduler.submit(sequence, now)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence at once."""
        self._scheduler.abort(sequence)

    def advance(self, until: float) -> tuple[list[Sequence], list[Sequence]]:
        """Let time come to `until`, this time included: the sequences that have had their first token
        and those that have ended since the last call, each in the order of time."""
        self._run(until, submitting=False)
        told = self._started, self._ended
        if told[0] or told[1]:
            self._started, self._ended = [], []
        return told

    @property
    def _busy(self) -> bool:
        return bool(self._scheduler.running or self._scheduler.waiting)

    def _run(self, until: float, *, submitting: bool) -> None:
        """Run all steps that end by `until`. Begin the one after if it would begin before something is
        submitted, or else if it is not one of those that can be leapt over later."""
        scheduler = self._scheduler
        while True:
            due = self._step_due
            if due is not None:
                if due > until:
                    return
                self._step_due = None
                self._ended += scheduler.finish_step(due)[1]
                self._started += scheduler.started
                self._begin_at = due
            if scheduler.even_steps():
                _, finished = scheduler.leap(until, beyond=submitting)
                self._begin_at = scheduler.step_end
                if finished:
                    self._ended += finished
                    continue
            if self._begin_at >= until if submitting else scheduler.even_steps():
                return
            seconds = scheduler.begin_step(self._begin_at) if self._begin_at <= until else None
            if seconds is None:
                return
            self._step_due = self._begin_at + seconds
