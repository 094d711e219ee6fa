"""What all generated workloads have in common: conversations by plan, arriving or kept alive, seeded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from random import Random

from replicarouter.replay.demand import Conversation, Turn, digest
from replicarouter.replay.growth import GrowingPrompt, head_blocks

_SETTLING = 0.4
"""Share of a short workload, at most, that is taken for its settling."""


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: tokens added to the prompt, tokens of the reply, and seconds after the reply before."""

    added: int
    reply: int
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One conversation: the first `head_tokens` of a text that is known by `head`, then its own turns."""

    steps: Sequence[Step]
    head: int = 0
    head_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload: how one conversation is drawn, and how much of it makes a load of 1.

    `rate` is in requests a second for each replica and `turns` the mean number of turns, for conversations
    that come when they come; `concurrency` instead is how many are kept alive for each replica. The load
    of 1 is about what replicas of the default profile (`h200-qwen-27b-fp8`, 256 sequences) carry within
    a TTFT of 2 s and an ITL of 25 ms when hits are found. `requests` are made unless others are asked for.
    After `settles` seconds there are about as many conversations at once as there will be.
    """

    name: str
    help: str
    draw: Callable[[Random], Plan]
    turns: float
    rate: float = 0.0
    concurrency: float = 0.0
    settles: float = 0.0
    requests: int = 10_000
    block_tokens: int = 64


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """How much of a workload: `requests` in all, by `replicas` and `load`. `rate` (requests a second in all)
    or `concurrency` (conversations in all) replace the workload's own at a load of 1; 0 for its own, as with
    `requests` and `block_tokens`."""

    requests: int = 0
    replicas: int = 8
    load: float = 1.0
    rate: float = 0.0
    concurrency: int = 0
    block_tokens: int = 0


class Workload:
    """A shape in a certain amount. The same seed makes the same conversations, whoever serves them."""

    def __init__(self, shape: Shape, options: WorkloadOptions) -> None:
        self._shape = shape
        self.name = shape.name
        self.block_tokens = options.block_tokens or shape.block_tokens
        self._requests = options.requests or shape.requests
        live = options.concurrency or (0 if options.rate else shape.concurrency * options.replicas)
        self.concurrency = max(1, round(live * options.load)) if live else 0
        self._rate = (options.rate or shape.rate * options.replicas) * options.load
        self.settles: float | None = 0.0
        if not self.concurrency:
            self.settles = min(shape.settles, _SETTLING * self._requests / self._rate)

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """So many conversations as make up the requests; the last may be cut short."""
        random = Random(digest(seed, len(self.name)))
        heads: dict[int, list[int]] = {}
        left, now, serial = self._requests, 0.0, 0
        while left > 0:
            serial += 1
            plan = self._shape.draw(random)
            if not self.concurrency:
                now += random.expovariate(self._rate / self._shape.turns)
            steps = plan.steps[:left]
            left -= len(steps)
            yield Conversation(now, self._turns(digest(seed, serial), plan, steps, heads))

    def _turns(
        self, serial: int, plan: Plan, steps: Sequence[Step], heads: dict[int, list[int]]
    ) -> Iterator[Turn]:
        size = self.block_tokens
        shared: Sequence[int] = ()
        if plan.head_tokens >= size:
            known = heads.get(plan.head, [])
            if len(known) < plan.head_tokens // size:
                known = heads[plan.head] = head_blocks(plan.head, plan.head_tokens, size)
            shared = known[: plan.head_tokens // size]
        prompt = GrowingPrompt(serial, size, shared, plan.head_tokens)
        for step in steps:
            prompt.grow(step.added)
            tokens, blocks = prompt.tokens, prompt.blocks()
            prompt.grow(step.reply)
            final = prompt.blocks()
            yield Turn(tokens, step.reply, blocks, final, step.delay, session=serial, head=serial)


def long_tailed(random: Random, mean: float, spread: float = 0.8, most: float = 20.0) -> int:
    """A log-normal whole number of this mean, at least 1 and at most `most` times the mean; `spread` is the
    standard deviation of its logarithm."""
    value = random.lognormvariate(log(mean) - spread**2 / 2, spread)
    return max(1, round(min(value, mean * most)))
