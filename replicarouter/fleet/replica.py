"""One replica: its identity, what we believe of it, and its counts as the ledger holds them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Any

from replicarouter.cells import Whole
from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger, Special
from replicarouter.fleet.lifecycle import Duty, State
from replicarouter.settings import ReplicaSettings
from replicarouter.words import counted

FILE, SETTINGS, ADMIN = "file", "settings", "admin"
"""Who lists a replica: the settings file, the settings without it (a flag, a variable), or an operator who
added it."""

PENALTY = 10.0
"""Seconds for which a failure counts like one more outstanding request."""

FOREIGN_HOLDS = 10.0
"""Seconds for which a reading says something about requests of others."""

STALE_AFTER_INTERVALS = 3
"""An engine reading older than this many scrape intervals says nothing any more."""

RAMP_START = 0.1
"""The share of its weight at which a newcomer begins: small, but enough to be chosen at all."""

MOST_LENGTH = 10**15
"""Tokens beyond which a model's length is a mistake; a float holds all below exactly."""

_BELIEFS = (
    *("most", "weight", "origin", "health", "duty", "why", "cards", "reading", "engine", "engine_version"),
    *("restarts", "foreign", "probe_failing", "stalled", "reborn_at", "ejected_until", "on_record"),
    *("trial", "tried_at", "cool_until", "_trial_above", "_ramp_from", "_full_at"),
)
_READ_BELIEFS = attrgetter(*_BELIEFS)

PEAK_READINGS = 10
"""Readings over which our own peak explains what an engine reports; gauges may lag by seconds."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One engine reading with our own view of the same moment."""

    engine: EngineReading
    at: float
    own: int

    @property
    def unexplained(self) -> float | None:
        """Requests with the replica by our count that its scheduler does not report, or the reverse."""
        if self.engine.running is None or self.engine.waiting is None:
            return None
        return self.own - self.engine.running - self.engine.waiting


@dataclass(slots=True, eq=False)
class Replica:
    """One serving address. `cells[row:]` are its counts; only a lease writes them.

    `most` outstanding requests it may have (0: no limit); `name` is its name in metrics and receipts;
    `weight` its share of requests, relative to the others of its pool; `origin` where it comes from:
    `FILE`, `SETTINGS` or `ADMIN`. `trial`: it is back from an ejection since `tried_at`, and its
    next request has to succeed; `stalled`: it has our requests and does nothing; `probe_failing`: its last
    probe failed; `on_record`: something is held against it that an answer would clear.

    `special` are the rows of the ledger's replicas that have, or had, failures, load of others or a slow
    start. The cost of all others is what they have outstanding by their weight, which can be compared
    without asking each.

    Times are seconds on the router's clock: `heard_at` of its last response byte over the attempts that
    have ended, `reborn_at` when its port was found open again after it had been closed, `ejected_until`
    and `cool_until` as they say.
    """

    settings: ReplicaSettings
    row: int
    cells: Whole
    most: int = 0
    name: str = ""
    weight: float = 1.0
    special: Special = field(default_factory=Special)
    counts: Callable[[int, Stage], int] | None = None
    origin: str = FILE
    health: State = State.LOADING
    duty: Duty = Duty.ACTIVE
    why: str = "not probed yet"
    cards: tuple[dict[str, Any], ...] | None = None
    reading: Reading | None = None
    engine: str = ""
    engine_version: str = ""
    restarts: int = 0
    foreign: float = 0.0
    heard_at: float = 0.0
    probe_failing: bool = False
    stalled: bool = False
    reborn_at: float = 0.0
    ejected_until: float = 0.0
    on_record: bool = False
    trial: bool = False
    tried_at: float = 0.0
    cool_until: float = 0.0
    failures: deque[float] = field(default_factory=deque)
    _trial_above: int = 0
    _ramp_from: float = 0.0
    _full_at: float = 0.0
    _own_peaks: deque[int] = field(default_factory=lambda: deque(maxlen=PEAK_READINGS))

    @classmethod
    def join(cls, settings: ReplicaSettings, ledger: Ledger, most: int, row: int | None = None) -> "Replica":
        """Make a replica with a row of its own in the ledger, or the one that it is given; `most`
        outstanding, 0 for no limit, unless its own settings say otherwise."""
        own = settings.max_outstanding
        most = most if own is None else own
        if row is None:
            row = ledger.add_row()
        replica = cls(settings, row, ledger.cells, most, settings.name, settings.weight, ledger.special)
        replica.counts = ledger.count
        return replica

    @property
    def state(self) -> State:
        """What is shown of it: `DRAINING` while its operator wants it gone, else its health."""
        return self.health if self.duty is Duty.ACTIVE else State.DRAINING

    @property
    def reason(self) -> str:
        """Why it is in the state that is shown: what its operator said, else what was found of its health."""
        match self.duty:
            case Duty.ACTIVE:
                return self.why
            case Duty.DRAINING:
                return "told to drain"
        still = f"{counted(self.outstanding, 'request')} still {'runs' if self.outstanding == 1 else 'run'}"
        return f"told to be removed; {still}"

    @property
    def roominess(self) -> tuple[Any, ...]:
        """What else than its state says which requests it takes, and how many."""
        return self.most, self.trial, self._trial_above, [card["id"] for card in self.cards or ()]

    def beliefs(self) -> tuple[Any, ...]:
        """What is believed of it and said of it, for `take_beliefs` in another process."""
        return (*_READ_BELIEFS(self), tuple(self.failures))

    def take_beliefs(self, beliefs: tuple[Any, ...]) -> None:
        """Believe what another process does."""
        *others, failures = beliefs
        for name, value in zip(_BELIEFS, others, strict=True):
            setattr(self, name, value)
        self.failures = deque(failures)
        if self.foreign or self.failures or self._full_at or self.row in self.special:
            # Its cost is settled at the next look, as that of others.
            self.special.add(self.row)

    @property
    def outstanding(self) -> int:
        """Requests connecting, sent or streaming."""
        return self.cells[self.row + OUTSTANDING]

    @property
    def limit(self) -> int:
        """Most requests that may be outstanding here now, 0 for no limit; on trial one above the old ones."""
        if not self.trial:
            return self.most
        return min(self.most, self._trial_above + 1) if self.most else self._trial_above + 1

    @property
    def has_room(self) -> bool:
        """Whether one more request may be outstanding here; on trial it has one at a time."""
        outstanding = self.cells[self.row + OUTSTANDING]
        if self.trial and outstanding > self._trial_above:
            return False
        return not self.most or outstanding < self.most

    @property
    def max_length(self) -> int | None:
        """Most tokens of a prompt and its answer together, of the model that takes least; None: not told."""
        lengths = (card.get("max_model_len") for card in self.cards or ())
        return min((one for one in lengths if type(one) is int and 0 < one <= MOST_LENGTH), default=None)

    def share(self, now: float) -> float:
        """Its weight at this moment, above 0: smaller while it starts slowly."""
        if now >= self._full_at:
            return self.weight
        grown = (now - self._ramp_from) / (self._full_at - self._ramp_from)
        return self.weight * max(RAMP_START, grown)

    def start_slowly(self, now: float, seconds: float) -> None:
        """Let its share grow to its full weight over `seconds`."""
        self._ramp_from, self._full_at = now, now + seconds
        self.special.add(self.row)

    def cooling(self, now: float) -> bool:
        """Whether it said lately that it is busy: others are preferred."""
        return now < self.cool_until

    def begin_trial(self, now: float = 0.0) -> None:
        """Give it one request at a time, above those that it has from before its ejection. Requests from
        before `now` prove nothing."""
        self.trial = True
        self.tried_at = now
        self._trial_above = self.outstanding
        # They led to the ejection, which is over; with their penalty nobody would choose it.
        if self.failures:
            self.failures.clear()
            self.special.add(self.row)

    def narrow_trial(self, older: int) -> None:
        """So many requests from before the trial are left: what the others had is no room for new ones."""
        self._trial_above = min(self._trial_above, older)

    def end_trial(self) -> None:
        """Give it as many requests as any other."""
        self.trial = False

    def count(self, stage: Stage) -> int:
        """Requests of this replica in one of its three stages."""
        if self.counts is None:
            return self.cells[self.row + stage]
        return self.counts(self.row, stage)

    @property
    def with_engine(self) -> int:
        """Requests that have been handed to the engine: sent and streaming."""
        return self.count(Stage.SENT) + self.count(Stage.STREAMING)

    def take(self, engine: EngineReading, now: float) -> None:
        """Keep a new reading, and see how much of it others than us must have sent."""
        before = self.reading
        if before is not None and _restarted(before.engine, engine):
            self.restarts += 1
        own = self.with_engine
        self._own_peaks.append(max(own, self.outstanding))
        self.reading = Reading(engine, now, own)
        reported = (engine.running or 0) + (engine.waiting or 0)
        foreign, self.foreign = self.foreign, max(0.0, reported - max(self._own_peaks))
        known = before is not None and now - before.at <= FOREIGN_HOLDS and self.row in self.special
        if self.foreign != foreign or (foreign and not known):
            self.special.add(self.row)

    def fresh_reading(self, now: float, limit: float) -> Reading | None:
        """The last reading unless it is older than `limit` seconds."""
        reading = self.reading
        return reading if reading is not None and now - reading.at <= limit else None

    def failed(self, now: float) -> None:
        """Remember a failure, for the penalty that keeps a fast-failing replica unattractive."""
        self._forget_failures(now)
        self.failures.append(now)
        self.special.add(self.row)

    def burden(self, now: float) -> tuple[float, float]:
        """What counts here beside our requests, which is load of others and recent failures; and until when
        that holds if nothing is noted before."""
        burden, until = 0.0, inf
        if self.foreign and self.reading is not None and now - self.reading.at <= FOREIGN_HOLDS:
            burden, until = self.foreign, self.reading.at + FOREIGN_HOLDS
        if self.failures:
            self._forget_failures(now)
        if self.failures:
            burden += len(self.failures)
            until = min(until, self.failures[0] + PENALTY)
        return burden, until

    def load(self, now: float) -> float:
        """Outstanding, what others have there, and recent failures: what a newcomer queues behind."""
        outstanding = self.cells[self.row + OUTSTANDING]
        return outstanding + self.burden(now)[0] if self.foreign or self.failures else outstanding

    def cost(self, now: float) -> float:
        """How loaded it would be with one more request: the least costly replica gets it.

        A slow start makes what a replica has weigh more, not what it is about to get: where nobody has
        anything, a newcomer is as good as the others.
        """
        load: float = self.cells[self.row + OUTSTANDING]
        if self.foreign or self.failures:
            load += self.burden(now)[0]
        if now >= self._full_at:
            return (load + 1) / self.weight
        return load / self.share(now) + 1 / self.weight

    def starts_slowly(self, now: float) -> bool:
        """Whether its share is less than its weight still."""
        return now < self._full_at

    def settle(self, now: float) -> None:
        """Take it off the special ones once its cost is what it has outstanding, by its weight."""
        self._forget_failures(now)
        if not self.foreign and not self.failures and now >= self._full_at:
            self.special.discard(self.row)

    def _forget_failures(self, now: float) -> None:
        while self.failures and self.failures[0] <= now - PENALTY:
            self.failures.popleft()


def _restarted(before: EngineReading, after: EngineReading) -> bool:
    if before.start_time is not None and after.start_time is not None:
        return after.start_time > before.start_time + 1
    if before.steps is None or after.steps is None:
        return False
    return after.steps < before.steps
