"""Requests one at a time, in order, against caches alone: what a policy does to hits and balance.

Nothing takes time here, so a policy sees load only as far as earlier requests are said to be in flight."""

from collections import deque
from dataclasses import dataclass
from random import Random

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.block_lru import BlockLru
from replicarouter.replay.demand import Demand, Turn, digest, in_order
from replicarouter.replay.fleet import ReplayFleet, as_request
from replicarouter.replay.tally import Tally

SCRAPE_INTERVAL = 1.0
"""Seconds between two readings of each engine: the router's default."""


@dataclass(frozen=True, slots=True)
class UntimedOptions:
    """`replicas` caches of `kv_blocks` blocks. A request is outstanding until `in_flight` later ones have
    been sent, 0: until just before the next one is asked about; the clock moves by `tick` seconds a
    request."""

    replicas: int = 8
    kv_blocks: int = 1200
    in_flight: int = 0
    tick: float = 0.1


@dataclass(slots=True, eq=False)
class _Flight:
    request: InferenceRequest
    turn: Turn
    replica: Replica
    cached: int


class Untimed:
    """One policy over one demand. Blocks are counted as the demand tells them, a last one that is not
    full included; replies are not cached, and hits are leading blocks that the chosen replica holds.

    With nothing in flight all replicas look idle to every request: fewest outstanding is then
    round-robin, and a rule that spills by outstanding requests never does.
    """

    def __init__(self, options: UntimedOptions, demand: Demand, policy: Policy, seed: int = 0) -> None:
        self._options = options
        self._demand = demand
        self._policy = policy
        self._seed = seed
        self._fleet = ReplayFleet(options.replicas)
        self._caches = [BlockLru(options.kv_blocks) for _ in range(options.replicas)]
        self._flights: deque[_Flight] = deque()
        self._now = 0.0
        self._scraped = float("-inf")

    def run(self) -> Tally:
        """Replay everything."""
        tally = Tally(self._options.replicas)
        random = Random(digest(self._seed, 1))
        for turn in in_order(self._demand, self._seed):
            self._now += self._options.tick
            while len(self._flights) > self._options.in_flight:
                self._land()
            if self._now - self._scraped >= SCRAPE_INTERVAL:
                self._scrape()
            self._send(turn, random, tally)
        while self._flights:
            self._land()
        tally.look_at(self._policy)
        tally.closed = tally.ended = self._now
        return tally

    def _scrape(self) -> None:
        self._scraped = self._now
        capacity = float(self._options.kv_blocks * self._demand.block_tokens)
        for replica in self._fleet.replicas:
            running = replica.outstanding
            self._fleet.read(replica, EngineReading(running, 0, 0.0, kv_capacity=capacity), self._now)

    def _send(self, turn: Turn, random: Random, tally: Tally) -> None:
        fleet, policy = self._fleet, self._policy
        block_tokens = self._demand.block_tokens
        request = as_request(turn, turn.blocks, block_tokens)
        choice = policy.pick(request, View(fleet.replicas, fleet.replicas, self._now, random))
        # Nobody is ever full here, and nothing would come of waiting.
        replica = choice.replica if isinstance(choice, Wait) else choice
        fleet.take(replica)
        if policy.learns:
            policy.sent(request, replica, self._now)
        number = fleet.numbers[replica]
        hit = self._caches[number].leading(turn.blocks)
        self._caches[number].insert(turn.blocks)
        cached = min(hit * block_tokens, turn.prompt_tokens)
        self._flights.append(_Flight(request, turn, replica, cached))
        tally.replayed += 1
        tally.requests += 1
        tally.answered += 1
        tally.prompt_tokens += len(turn.blocks) * block_tokens
        tally.cached_tokens += hit * block_tokens
        found = request.found * block_tokens // request.block_characters
        tally.expected_tokens += min(found, hit * block_tokens)
        tally.output_tokens += turn.output_tokens
        tally.given[number] += 1
        tally.uncached[number] += len(turn.blocks) - hit
        tally.affinity[request.affinity] = tally.affinity.get(request.affinity, 0) + 1

    def _land(self) -> None:
        flight = self._flights.popleft()
        fleet, policy, turn = self._fleet, self._policy, flight.turn
        fleet.stream(flight.replica)
        if policy.learns:
            policy.began(flight.request, flight.replica, self._now)
        fleet.release(flight.replica)
        if policy.learns:
            told = Ending("ok", turn.prompt_tokens, flight.cached, turn.output_tokens)
            policy.finished(flight.request, flight.replica, told, self._now)
