"""What the checks look at: a window, and in it the replicas and pools with what is known of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from replicarouter.diagnosis.course import Course
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.verdict import Expectations
from replicarouter.diagnosis.window import Window

READY, DRAINING = "ready", "draining"

AT_CAPACITY = 0.95
"""Share of its configured `max_num_seqs` from which on an engine counts as full: sequences end and begin
between its readings."""

HELD_TOO_LONG = 0.1
"""Seconds a request may wait in the router before it counts as held back: the contract's own number."""

CERTAIN = 2
"""Requests that must wait where the page does not tell for how long."""

LIMIT_REACHED = 0.9
"""Share of a limit from which on it counts as reached: a place that gets free is taken a moment later."""

STEPS = 2
"""Steps of an engine that a request may wait for without there being a queue: one that comes during a step
waits for the next, and if answers are a few tokens long, so do many at any time."""

MOST_BUSY = 0.5
"""Share of the ready replicas with waiting requests above which the engines are what requests wait for: up to
it, the others would take more at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One replica over the window. None: nobody has told, or not lately.

    `ready` is the share of the looks at which it was. Of the counts, `outstanding` and `with_engine` (sent
    and streaming) are the router's own; `running`, `waiting` and `kv` come from its engine. So many as
    `stepping` wait at any time for no more than the next `STEPS` steps.
    """

    name: str
    state: str
    ready: float
    weight: float
    limit: float
    max_num_seqs: float | None
    outstanding: Course
    with_engine: Course
    running: Course | None
    waiting: Course | None
    kv: Course | None
    unexplained: Course | None
    stepping: float = 0.0

    @property
    def takes(self) -> bool:
        """Whether it can be given requests now."""
        return self.state == READY

    @property
    def typical(self) -> float:
        """Requests that it usually has outstanding."""
        return self.outstanding.median

    @property
    def queues(self) -> bool:
        """Whether requests wait in its engine most of the time, and for room rather than for a step."""
        return self.waiting is not None and self.waiting.median > self.stepping

    @property
    def idle(self) -> bool:
        """Whether its engine tells that nothing waits there, or for no more than a step."""
        return self.waiting is not None and not self.queues

    @property
    def full(self) -> bool:
        """Whether it runs as many sequences as it may, as far as that is known."""
        if self.running is None or not self.max_num_seqs:
            return False
        return self.running.median >= AT_CAPACITY * self.max_num_seqs

    @property
    def at_limit(self) -> bool:
        """Whether it has as many requests as the router lets it have."""
        return 0 < LIMIT_REACHED * self.limit <= self.outstanding.median


@dataclass(frozen=True, slots=True)
class Pool:
    """The replicas that serve a model; the name is empty where it is not told. Policies by what the router
    says of itself, or else by what it did."""

    model: str
    members: tuple[Member, ...]
    policies: tuple[str, ...]

    @property
    def takers(self) -> tuple[Member, ...]:
        """Those that can be given requests."""
        return tuple(member for member in self.members if member.takes)


class Case:
    """A window, and what the person who asks expects."""

    def __init__(self, window: Window, expected: Expectations) -> None:
        self.window = window
        self.expected = expected

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All replicas that the last page knows, by name."""
        return tuple(_members(self.window))

    @cached_property
    def takers(self) -> tuple[Member, ...]:
        """The replicas that can be given requests."""
        return tuple(member for member in self.members if member.takes)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools; a replica of several models is in each of theirs, one of no known model in one of its
        own kind."""
        return tuple(_pools(self.window, self.members))

    @cached_property
    def accepted(self) -> Course:
        """Requests that were accepted and have not finished."""
        return self.window.over(in_flight)

    @cached_property
    def queued(self) -> Course:
        """Requests that wait in the router for a replica with room."""
        return self.window.course("requests_queued")

    @cached_property
    def connecting(self) -> Course:
        """Requests that have a replica and no connection yet."""
        return self.window.course("requests_outstanding", stage="connecting")

    @cached_property
    def waiting_for_slot(self) -> Course:
        """Those of them that wait because the connector has reached its limit."""
        return self.window.course("connector_waiting")

    @cached_property
    def running(self) -> float:
        """Requests that the engines usually work on, in all."""
        return self.window.course("engine_requests_running").median

    @cached_property
    def waiting(self) -> Course:
        """Requests that wait in the engines, in all."""
        return self.window.course("engine_requests_waiting")

    def queued_for(self, pool: Pool) -> Course:
        """Those in the queue that wait for a replica of this pool."""
        if len(self.pools) == 1 or not pool.model:
            return self.queued
        return self.window.course("requests_queued", model=pool.model)

    def held(self, requests: Course) -> bool:
        """Whether the router itself makes some of these requests wait, and for longer than it takes to hand
        them on."""
        if requests.floor < 1:
            return False
        longest = self.window.last.value("held_seconds")
        if longest is None:
            return requests.median >= CERTAIN
        return self.window.course("held_seconds").median >= HELD_TOO_LONG

    def busy(self, members: Sequence[Member]) -> bool:
        """Whether most of these engines have all they can work on, so that nothing is gained by sending
        them more."""
        if not members:
            return False
        count = sum(member.queues or member.full for member in members)
        return count > MOST_BUSY * len(members)


def in_flight(snapshot: Snapshot) -> float:
    """Requests in any stage."""
    names = ("requests_receiving", "requests_queued", "requests_outstanding")
    return sum(snapshot.total(name) for name in names)


def states_of(snapshot: Snapshot) -> dict[str, str]:
    """The state of each replica."""
    rows = snapshot.rows("replica_state")
    return {row.get("replica", ""): row.get("state", "") for row, value in rows if value == 1}


def _members(window: Window) -> Iterable[Member]:
    last = window.last
    states = [states_of(snapshot) for snapshot in window.snapshots]
    weights, limits, seqs = (
        last.by("replica", name)
        for name in ("replica_weight", "replica_outstanding_limit", "replica_max_num_seqs")
    )
    outstanding = window.courses("replica", "requests_outstanding")
    connecting = window.courses("replica", "requests_outstanding", stage="connecting")
    running, waiting, kv, unexplained = (
        _fresh(window, name)
        for name in (
            "engine_requests_running",
            "engine_requests_waiting",
            "engine_kv_usage_ratio",
            "requests_unexplained",
        )
    )
    nothing = Course([0.0])
    stepping = _stepping(window)
    for name in sorted(states[-1]):
        seen = [found[name] for found in states if name in found]
        ours, opening = outstanding.get(name, nothing), connecting.get(name, nothing)
        yield Member(
            name=name,
            state=seen[-1],
            ready=sum(state == READY for state in seen) / len(seen),
            weight=weights.get(name, 1.0),
            limit=limits.get(name, 0.0),
            max_num_seqs=seqs.get(name),
            outstanding=ours,
            with_engine=_difference(ours, opening),
            running=running.get(name),
            waiting=waiting.get(name),
            kv=kv.get(name),
            unexplained=unexplained.get(name),
            stepping=stepping.get(name, 0.0),
        )


def _stepping(window: Window) -> dict[str, float]:
    """By Little's law: the rate at which requests end, times how long some steps take."""
    if not window.seconds:
        return {}
    ended = window.growths("replica", "requests_total")
    gaps = window.means("replica", "itl_seconds")
    return {name: ended.get(name, 0.0) / window.seconds * STEPS * gap.seconds for name, gap in gaps.items()}


def _fresh(window: Window, name: str) -> dict[str, Course]:
    """An engine's gauge, of those engines whose reading was still fresh at the last look."""
    present = window.last.by("replica", name)
    return {key: course for key, course in window.courses("replica", name).items() if key in present}


def _difference(one: Course, other: Course) -> Course:
    if len(one.values) != len(other.values):
        return one
    return Course([left - right for left, right in zip(one.values, other.values, strict=True)])


def _pools(window: Window, members: Sequence[Member]) -> Iterable[Pool]:
    policies: dict[str, set[str]] = {}
    for row, _ in window.last.rows("policy_info"):
        policies.setdefault(row.get("model", ""), set()).add(row.get("policy", ""))
    used = {policy for policy, grown in _uses(window).items() if grown}
    models = set(policies) or {row.get("model", "") for row, _ in window.last.rows("requests_queued")}
    if len(models) == 1:
        (model,) = models
        yield Pool(model, tuple(members), tuple(sorted(policies.get(model, used))))
        return
    served: dict[str, set[str]] = {}
    for name in ("requests_total", "engine_info"):
        for row, _ in window.last.rows(name):
            if (model := row.get("model", "")) and (replica := row.get("replica")):
                served.setdefault(replica, set()).add(model)
    by_model: dict[str, list[Member]] = {}
    for member in members:
        for model in served.get(member.name, {""}):
            by_model.setdefault(model, []).append(member)
    for model, found in sorted(by_model.items()):
        yield Pool(model, tuple(found), tuple(sorted(policies.get(model, used))))


def _uses(window: Window) -> dict[str, float]:
    if window.rates:
        return window.growths("policy", "affinity_total")
    return window.last.by("policy", "affinity_total")
