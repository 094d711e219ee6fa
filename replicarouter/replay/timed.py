"""The replay in virtual time: arrivals, engines and the router's hooks, event by event."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Policy
from replicarouter.replay.demand import Conversation, Demand, Turn, digest
from replicarouter.replay.fleet import ReplayFleet
from replicarouter.replay.gate import Gate, GateRules
from replicarouter.replay.job import Job
from replicarouter.replay.tally import NO_ITL, Tally
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import DEFAULT_PROFILE, PROFILES
from replicarouter.simulator.virtual_engine import VirtualEngine

LOOK_EVERY = 1024
"""Requests between two looks at how much the policy remembers."""


class ReplayError(Exception):
    """The replay cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class TimedOptions:
    """`replicas` simulated engines with the step times of `profile`, `kv_blocks` blocks of the demand's
    size each, and at most `max_num_seqs` sequences in a batch. `scrape` is the seconds between two readings
    of each engine, 0 for none but the first."""

    replicas: int = 8
    kv_blocks: int = 9_600
    profile: str = DEFAULT_PROFILE
    max_num_seqs: int = 256
    scrape: float = 1.0
    gate: GateRules = field(default_factory=GateRules)


class Timed:
    """One policy over one demand. The policy has real replicas to look at, whose counts move as leases move
    them, and is told what the router would tell it. Time is virtual; events of the same moment happen in
    the order in which they became known.

    Where the demand `settles`, requests are counted that come after it has, and before the last conversation
    has begun (of those that are kept alive: before there are fewer), because the load falls from then on.
    Gaps between tokens and preemptions are those of all requests.

    The work of an event does not grow with the number of replicas, the policy's own aside.
    """

    def __init__(self, options: TimedOptions, demand: Demand, policy: Policy, seed: int = 0) -> None:
        self._options = options
        self._demand = demand
        self._policy = policy
        self._seed = seed
        self._fleet = ReplayFleet(options.replicas, options.gate.most)
        self._measures = Measures()
        self._tally = Tally(options.replicas)
        self._measures.token_gap = self._tally.gaps
        profile = PROFILES[options.profile]
        self._engines = [
            VirtualEngine(
                profile,
                max_num_seqs=options.max_num_seqs,
                blocks=KvBlocks(options.kv_blocks, demand.block_tokens),
                measures=self._measures,
            )
            for _ in range(options.replicas)
        ]
        self._due = [inf] * options.replicas
        self._heap: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._serial = 0
        self._open = 0  # conversations that are to come next, or have begun and not ended
        self._steady = demand.settles is not None
        self._tally.began = demand.settles or 0.0
        self._tally.closed = inf
        self._latest = 0.0  # arrival
        self._coming: Iterator[Conversation] = iter(())
        random = Random(digest(seed, 1))
        self._gate = Gate(options.gate, self._fleet, policy, random, self._remind_at)

    def run(self) -> Tally:
        """Replay everything; raises `ReplayError`."""
        tally = self._tally
        self._coming = self._demand.conversations(self._seed)
        self._scrape(None, 0.0)
        for _ in range(self._demand.concurrency or 1):
            self._await_next()
        heap = self._heap
        pop = heapq.heappop
        while heap:
            now, _, act, what = pop(heap)
            act(what, now)
        tally.preemptions = self._measures.preemptions
        tally.look_at(self._policy)
        if not self._steady:
            tally.closed = self._latest
        return tally

    def counts(self) -> list[int]:
        """The cells of the ledger: all zero when every request has ended."""
        return list(self._fleet.ledger.cells)

    # Events

    def _at(self, moment: float, act: Callable[[Any, float], None], what: Any) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (moment, self._serial, act, what))

    def _await_next(self, now: float = 0.0) -> None:
        """Have the next conversation begin when it comes, or now where a number of them is kept alive."""
        conversation = next(self._coming, None)
        if conversation is None:
            if self._steady:
                self._tally.closed = min(self._tally.closed, now)
            return
        self._open += 1
        self._at(now if self._demand.concurrency else conversation.at, self._begin, conversation.turns)

    def _begin(self, turns: Iterator[Turn], now: float) -> None:
        if not self._demand.concurrency:
            self._await_next(now)
        self._go_on(turns, now)

    def _go_on(self, turns: Iterator[Turn], now: float) -> None:
        """Let the next turn come, or end the conversation."""
        turn = next(turns, None)
        if turn is None:
            self._open -= 1
            if self._demand.concurrency:
                self._await_next(now)
            return
        moment = max(now + turn.delay, turn.at)
        if moment > now:
            self._at(moment, self._arrive, (turn, turns))
        else:
            self._arrive((turn, turns), now)

    def _arrive(self, what: tuple[Turn, Iterator[Turn]], now: float) -> None:
        turn, turns = what
        job = Job(turn, turns, self._demand.block_tokens, now)
        self._tally.replayed += 1
        if self._tally.replayed % LOOK_EVERY == 0:
            self._tally.look_at(self._policy)
        self._latest = now
        job.counted = self._tally.began <= now <= self._tally.closed
        self._tally.requests += job.counted
        if self._gate.admit(job, now):
            self._send(job, now)
        elif job.line is None:
            self._refuse(job, now)

    def _remind_at(self, moment: float, job: Job) -> None:
        self._at(moment, self._remind, job)

    def _remind(self, job: Job, now: float) -> None:
        if job.line is None:
            return
        if self._gate.remind(job, now):
            self._send(job, now)
        elif job.line is None:
            self._refuse(job, now)

    def _wake(self, number: int, now: float) -> None:
        """An engine may have something to tell."""
        if self._due[number] != now:
            return  # Another time has been asked for since.
        self._due[number] = inf
        engine = self._engines[number]
        started, ended = engine.advance(now)
        for job in started:
            assert isinstance(job, Job)
            self._stream(job, now)
        for job in ended:
            assert isinstance(job, Job)
            self._finish(job, now)
        self._set_alarm(number, engine)

    def _scrape(self, _: None, now: float) -> None:
        options, block_tokens = self._options, self._demand.block_tokens
        capacity = float(options.kv_blocks * block_tokens)
        for replica, engine in zip(self._fleet.replicas, self._engines, strict=True):
            usage = engine.blocks.usage
            reading = EngineReading(engine.running, engine.waiting, usage, kv_capacity=capacity)
            replica.take(reading, now)
        if options.scrape and (self._open or not now):
            self._at(now + options.scrape, self._scrape, None)

    # One request

    def _send(self, job: Job, now: float) -> None:
        replica = job.replica
        assert replica is not None
        self._fleet.take(replica)
        if self._policy.learns:
            self._policy.sent(job.request, replica, now)
        number = self._fleet.numbers[replica]
        self._tally.given[number] += job.counted
        engine = self._engines[number]
        try:
            engine.submit(job, now)
        except ValueError:
            tokens, capacity = job.prompt_tokens + job.limit, engine.blocks.total * engine.blocks.block_size
            raise ReplayError(
                f"a request of {tokens} tokens does not fit into a KV cache of {capacity}: give replicas "
                "more blocks, or leave out long prompts"
            ) from None
        self._set_alarm(number, engine)

    def _set_alarm(self, number: int, engine: VirtualEngine) -> None:
        due = engine.next_event_at
        if due != self._due[number]:
            self._due[number] = due
            if due < inf:
                self._at(due, self._wake, number)

    def _stream(self, job: Job, now: float) -> None:
        replica = job.replica
        assert replica is not None
        self._fleet.stream(replica)
        if self._policy.learns:
            self._policy.began(job.request, replica, now)

    def _finish(self, job: Job, now: float) -> None:
        replica = job.replica
        assert replica is not None
        self._fleet.release(replica)
        if job.counted:
            self._note(job, replica)
        if self._policy.learns:
            told = Ending("ok", job.prompt_tokens, job.cached_tokens, job.limit)
            self._policy.finished(job.request, replica, told, now)
        if self._gate.waiting:
            while (other := self._gate.next_for(replica, now)) is not None:
                self._send(other, now)
        self._go_on(job.turns, now)

    def _refuse(self, job: Job, now: float) -> None:
        self._tally.refused += job.counted
        self._go_on(job.turns, now)

    def _note(self, job: Job, replica: Replica) -> None:
        tally = self._tally
        tally.answered += 1
        tally.prompt_tokens += job.prompt_tokens
        tally.cached_tokens += job.cached_tokens
        request = job.request
        found = request.found * self._demand.block_tokens // request.block_characters
        tally.expected_tokens += min(found, job.cached_tokens)
        tally.output_tokens += job.limit
        tally.uncached[self._fleet.numbers[replica]] += job.prompt_tokens - job.cached_tokens
        tally.ended = max(tally.ended, job.ended)
        tally.ttft.append(job.first_token - job.came)
        gaps = job.limit - 1
        tally.itl.append((job.ended - job.first_token) / gaps if gaps else NO_ITL)
        how = request.affinity
        tally.affinity[how] = tally.affinity.get(how, 0) + 1
